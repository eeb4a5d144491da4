"""What pipelines cost and change: PipeDream on one device, and the schedules of torch over two processes.

Memory is that of living tensors, time that of the processors, so that other work on the machine changes neither.
"""

import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD

from tools.bench import data
from tools.bench.architectures import build
from tools.bench.networks import NETWORKS
from unifiednn_core.base.units import memory_text
from unifiednn_core.techniques.live_bytes import LiveBytes
from unifiednn_core.techniques.pipelines.pipedream import PipeDream
from unifiednn_core.techniques.pipelines.profile import stages
from unifiednn_core.techniques.pipelines.synchronous import ONE_STAGE, SCHEDULES, Pipelining, ScheduleName, train

Batches = Sequence[tuple[Tensor, Tensor]]
NETWORK_DATA = {"lenet": ("mnist", 6_000), "resnet18": ("cifar10", 2_560)}
BATCH, EPOCHS, RATE, TEST = 128, 3, 0.05, 1_000
STAGES = (1, 2, 4)
MICRO_BATCHES = 4
ABOUT = (
    "Pipelines: PipeDream with several stages on one device beside the plain loop, and the schedules of"
    " `torch.distributed.pipelining` over two processes beside accumulation in one."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delayed:
    """One network, trained by PipeDream on one device; with one stage it is the plain loop."""

    network: str
    stages: int
    peak_bytes: int
    """Most alive at once beyond weights and data, over a pipeline that is full."""
    cpu_s: tuple[float, ...]
    """Per batch; one for each epoch."""
    accuracy: float
    same_bits: bool
    """As of the plain loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduled:
    """One schedule over two processes."""

    schedule: str
    stages: int
    same_bits: bool
    """Weights, buffers and gradients as after accumulation in one process."""
    call_s: float
    """Start and end of the processes, and all steps: nearly all of it two interpreters that load torch."""


def read(network: str, folder: Path) -> tuple[Batches, tuple[Tensor, Tensor]]:
    """Training batches in file order, and test samples."""
    name, count = NETWORK_DATA[network]
    source = data.SOURCES[name]
    split, scaling = source.read(folder, 0), source.scaling

    def tensors(part: tuple[Any, Any], most: int) -> tuple[Tensor, Tensor]:
        inputs = torch.from_numpy(part[0][:most].copy()).float() * scaling["scale"]
        return (inputs - scaling["mean"]) / scaling["std"], torch.from_numpy(part[1][:most].copy())

    inputs, targets = tensors(split.train, count)
    pairs = zip(torch.split(inputs, BATCH), torch.split(targets, BATCH), strict=True)
    return list(pairs), tensors(split.test, TEST)


def made(network: str) -> nn.Module:
    """The narrowed network, each time the same."""
    known = NETWORKS[network]
    torch.manual_seed(0)
    return build(known.architecture, known.args("cpu"))


def plain(network: nn.Module, batches: Batches) -> Iterator[None]:
    """The loop by hand."""
    optimizer = SGD(network.parameters(), lr=RATE)
    for inputs, targets in batches:
        optimizer.zero_grad(set_to_none=True)
        cross_entropy(network(inputs), targets).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        yield


def pipeline_of(network: nn.Module, batches: Batches, count: int) -> PipeDream:
    """Profile and cut the network."""
    parts = stages(network, batches[0][0], count)
    return PipeDream(parts, [SGD(part.parameters(), lr=RATE) for part in parts])


def piped(pipeline: PipeDream, batches: Batches) -> Iterator[object]:
    """The same by PipeDream."""
    given = ((inputs, lambda output, targets=targets: cross_entropy(output, targets)) for inputs, targets in batches)
    return pipeline.train(given, len(batches))


def peak_bytes(network: nn.Module, batches: Batches, count: int) -> int:
    """Most bytes alive beyond the weights and the data of a pipeline that fills and drains."""
    few = batches[: 2 * count + 2]
    pipeline = pipeline_of(network, few, count)
    live = LiveBytes()
    live.track([*network.parameters(), *network.buffers(), *(one for batch in few for one in batch)])
    before = live.current_bytes
    with live:
        list(piped(pipeline, few))
    return max(live.timeline) - before


def delayed(network: str, folder: Path) -> Iterator[Delayed]:
    """Train a network by hand and by PipeDream with each number of stages."""
    batches, (inputs, targets) = read(network, folder)
    by_hand = made(network)
    for _ in range(EPOCHS):
        list(plain(by_hand, batches))
    for count in STAGES:
        trained, spent_s = made(network), []
        pipeline = pipeline_of(trained, batches, count)
        for _ in range(EPOCHS):
            begun_s = time.process_time()
            list(piped(pipeline, batches))
            spent_s.append((time.process_time() - begun_s) / len(batches))
        with torch.no_grad():
            right = (trained.eval()(inputs).argmax(1) == targets).float().mean().item()
        yield Delayed(
            network=network,
            stages=count,
            peak_bytes=peak_bytes(made(network), batches, count),
            cpu_s=tuple(spent_s),
            accuracy=right,
            same_bits=all(map(torch.equal, trained.state_dict().values(), by_hand.state_dict().values())),
        )


def scheduled(folder: Path) -> Iterator[Scheduled]:
    """Take two steps of LeNet under each schedule."""
    batches = read("lenet", folder)[0][:2]
    for schedule in SCHEDULES:
        whole, alone = made("lenet"), made("lenet")
        parts = stages(whole, batches[0][0][: BATCH // MICRO_BATCHES], 2 if schedule in ONE_STAGE else 4)
        begun_s = time.monotonic()
        train(parts, batches, _how(schedule))
        call_s = time.monotonic() - begun_s
        optimizer = SGD(alone.parameters(), lr=RATE)
        for inputs, targets in batches:
            optimizer.zero_grad(set_to_none=True)
            for one, wanted in zip(inputs.chunk(MICRO_BATCHES), targets.chunk(MICRO_BATCHES), strict=True):
                cross_entropy(alone(one), wanted).backward()  # type: ignore[no-untyped-call]
            for weight in alone.parameters():
                if weight.grad is not None:
                    weight.grad /= MICRO_BATCHES
            optimizer.step()
        same = all(map(torch.equal, _all_of(whole), _all_of(alone)))
        yield Scheduled(schedule=schedule, stages=len(parts), same_bits=same, call_s=call_s)


def _how(schedule: ScheduleName) -> Pipelining:
    return Pipelining(
        schedule=schedule, micro_batches=MICRO_BATCHES, devices=("cpu", "cpu"), optimizer_args={"lr": RATE}
    )


def _all_of(network: nn.Module) -> list[Tensor]:
    gradients = [one.grad for one in network.parameters() if one.grad is not None]
    return [*network.state_dict().values(), *gradients]


def described(delays: Sequence[Delayed], schedules: Sequence[Scheduled]) -> dict[str, Any]:
    """Tables and figures."""
    first = {one.network: one for one in delays if one.stages == 1}
    rows = [
        (
            one.network,
            "PipeDream, 1 stage" if one.stages == 1 else f"PipeDream, {one.stages} stages",
            f"{memory_text(one.peak_bytes)} ({one.peak_bytes / first[one.network].peak_bytes:.2f} times)",
            f"{1000 * median(one.cpu_s):.1f} ms",
            f"{one.accuracy:.1%}",
            "the same" if one.same_bits else "other",
        )
        for one in delays
    ]
    others = [(one.schedule, str(one.stages), "the same" if one.same_bits else "**other**") for one in schedules]
    exact = all(one.same_bits for one in first.values()) and all(one.same_bits for one in schedules)
    return {
        "about": ABOUT,
        "passed": exact,
        "thresholds": [],
        "notes": [
            "PipeDream is made for several devices. On one it saves nothing: each stage keeps the activations of the"
            " batches under way and a version of its weights for each.",
            f"Accuracy on {TEST:,} test samples after {EPOCHS} epochs of batches of {BATCH}, SGD with {RATE:g}; a"
            " pipeline is filled and drained in each epoch. With one stage it is the plain loop, bit for bit.",
            "The schedules of torch do not change what is learned: one update per batch, gradients of accumulation over"
            f" {MICRO_BATCHES} micro-batches.",
        ],
        "tables": [
            {
                "title": "PipeDream on one device, memory beyond weights and data:",
                "rows": rows,
                "heads": (
                    "network",
                    "training",
                    "memory at most",
                    "CPU time of a batch",
                    "test accuracy",
                    "bits of the plain loop",
                ),
            },
            {
                "title": "LeNet over two processes, two steps:",
                "rows": others,
                "heads": ("schedule", "stages", "bits of accumulation"),
            },
        ],
        "delays": [*map(asdict, delays)],
        "schedules": [*map(asdict, schedules)],
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    place = data.folder_of(None)
    slow = [one for network in NETWORK_DATA for one in delayed(network, place)]
    sys.stdout.write(json.dumps(described(slow, list(scheduled(place)))) + "\n")
