"""Networks placed on several devices under hard limits of memory: balance, peaks and bits; logical devices of a CPU.

Costs are measured on this machine: run it on an idle one.
"""

import json
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

from tools.bench.architectures import build
from tools.bench.networks import NETWORKS
from unifiednn_core.base.errors import Infeasible
from unifiednn_core.base.units import memory_text
from unifiednn_core.techniques.placement.costs import MachineRates, costs, exported
from unifiednn_core.techniques.placement.execute import PlacedNetwork
from unifiednn_core.techniques.placement.graph import CostGraph, Edge, Op, Weight
from unifiednn_core.techniques.placement.place import PlacedOps, place
from unifiednn_core.techniques.placement.refine import EFFORT
from unifiednn_core.techniques.placement.stages import stages

DEVICES = (2, 4)
MICRO_BATCHES = 8
SHARES = tuple(share / 20 for share in range(5, 20))
"""Limits of each device that are tried, as shares of what one device needs; the first that can be kept is reported."""
MOST_OF_BOUND = 1.15
_KIB = 1024
LARGE_OPS, LARGE_DEVICES, LARGE_SHARE = 100_000, 4, 0.28
"""A large graph, and the limit of each device as a share of what one device needs: a fair share is 0.25."""
MOST_LARGE_S = 60.0
_CUT = 3
"""Tensors that may cross from a stage to the next: a shortcut, a mask."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedNet:
    """A network to place."""

    architecture: str
    args: Mapping[str, Any]
    shape: tuple[int, ...]
    words: int = 0
    """Of the vocabulary; 0 for images."""
    reading: str


NETS: Mapping[str, PlacedNet] = {
    "ResNet50": PlacedNet(
        architecture="resnet",
        args={"blocks": [3, 4, 6, 3], "width": 64, "channels": 3, "classes": 10, "bottleneck": True},
        shape=(8, 3, 32, 32),
        reading="full size, images of 32x32, batch of 8",
    ),
    "VGG16+CBAM": PlacedNet(
        architecture="vgg_cbam",
        args={**NETWORKS["vgg16_cbam"].full, "width": 32, "hidden": 512},
        shape=(2, 3, 112, 112),
        reading="half the width, hidden layers of 512 instead of 4096, images of 112x112, batch of 2",
    ),
    "Transformer LM": PlacedNet(
        architecture="transformer_lm",
        args={**NETWORKS["transformer_lm"].full, "vocabulary": 2000, "layers": 6},
        shape=(20, 35),
        words=2000,
        reading="2,000 words instead of 28,782, 6 layers instead of 2, batch of 20",
    ),
    "XLM-R": PlacedNet(
        architecture="roberta",
        args={**NETWORKS["xlm_roberta"].full, "vocabulary": 8000, "layers": 6, "positions": 66},
        shape=(8, 56),
        words=8000,
        reading="8,000 words instead of 250,002, 6 layers instead of 12, batch of 8",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedRow:
    """One network on so many devices."""

    network: str
    reading: str
    operators: int
    devices: int
    cap_share: float | None
    """Limit of each device, as a share of what one device needs for all; None without a limit."""
    used: int
    """Devices that do anything."""
    of_bound: float
    """Seconds of a step by what no placement can beat: the critical path, or a fair share of the work."""
    program_of_bound: float
    """If each device works in the order of the program."""
    path_share: float
    """Of all work, that on the critical path: near 1, several devices cannot be faster than one."""
    peak_of_cap: float | None
    """Fullest device; None without a limit."""
    same_bits: bool
    """Outputs and gradients, with those of the network on one device."""
    balance: float
    """Slowest of consecutive stages, by a fair share of the work."""
    pipeline_of_bound: float
    """Seconds of a step of 8 micro-batches through these stages, by those of stages in perfect balance."""


def measure(
    nets: Mapping[str, PlacedNet] = NETS,
    rates: MachineRates | None = None,
    shares: Sequence[float] = SHARES,
    effort: int = EFFORT,
) -> list[PlacedRow]:
    """Place each network on 2 and 4 devices, without limits and under the tightest that can be kept; run each once.

    With `rates`, costs are counted instead of measured, so that the rows are equal on every machine. `effort` is that
    of each search.
    """
    return [row for name, net in nets.items() for row in _rows(name, net, rates, shares, effort)]


@dataclass(frozen=True, slots=True, kw_only=True)
class LargeRow:
    """A large graph of operators, placed."""

    operators: int
    devices: int
    cap_bytes: int | None
    cpu_s: float
    """Of the search, in one thread: on an idle machine what a clock shows."""
    of_bound: float
    peak_of_cap: float | None


def large_graph(ops: int = LARGE_OPS, seed: int = 0) -> CostGraph:
    """A graph with branches in which every fourth operator has a weight; equal for equal seeds."""
    draw = random.Random(seed)
    made = tuple(
        Op(
            f"op{number}",
            draw.randint(1, 20) * 1e-5,
            draw.randint(0, 30) * 1e-5,
            draw.randint(1, 64) * _KIB,
            keeps_output=draw.random() < 0.3,
        )
        for number in range(ops)
    )
    edges = tuple(
        Edge(source, target, made[source].output_bytes, made[source].output_bytes, kept=draw.random() < 0.5)
        for target in range(1, ops)
        for source in sorted({max(0, target - draw.choice((1, 1, 2, 5, 50))) for _ in range(draw.choice((1, 1, 2)))})
    )
    held = tuple(Weight(f"w{number}", draw.randint(1, 64) * _KIB, (number,)) for number in range(0, ops, 4))
    return CostGraph(made, edges, held)


def large_caps(graph: CostGraph) -> list[int | None]:
    """Limits so tight that a placement without them is above them."""
    return [int(LARGE_SHARE * place(graph, [1 << 62], effort=1).peaks_bytes[0])] * LARGE_DEVICES


def large() -> list[LargeRow]:
    """Place a large graph without limits and with them."""
    graph, rows = large_graph(), []
    unlimited: list[int | None] = [None] * LARGE_DEVICES
    for caps in (unlimited, large_caps(graph)):
        begun_s = time.process_time()
        found = place(graph, caps)
        rows.append(
            LargeRow(
                operators=len(graph.ops),
                devices=len(caps),
                cap_bytes=caps[0],
                cpu_s=time.process_time() - begun_s,
                of_bound=found.makespan_s / found.bound_s,
                peak_of_cap=None if caps[0] is None else max(found.peaks_bytes) / caps[0],
            )
        )
    return rows


def _rows(
    name: str, net: PlacedNet, rates: MachineRates | None, shares: Sequence[float], effort: int
) -> list[PlacedRow]:
    torch.manual_seed(0)
    inputs = torch.randint(2, net.words, net.shape) if net.words else torch.randn(net.shape)
    network = exported(build(net.architecture, net.args), inputs)
    graph = costs(network, [inputs], rates=rates)
    alone_bytes = place(graph, [1 << 62], effort=effort).peaks_bytes[0]
    expected = _step(network, network, inputs)
    rows = []
    for devices in DEVICES:
        stretches = stages(graph, devices, most_tensors=_CUT)
        fair_s = graph.work_s / devices
        seconds = [stage.seconds for stage in stretches]
        perfect_s = pipeline_s([fair_s] * devices, MICRO_BATCHES)
        for share, cap, found in _placements(graph, devices, alone_bytes, shares, effort):
            placed = PlacedNetwork(network, graph, found.device_of, [torch.device("cpu")] * devices)
            rows.append(
                PlacedRow(
                    network=name,
                    reading=net.reading,
                    operators=len(graph.ops),
                    devices=devices,
                    cap_share=share,
                    used=len(set(found.device_of)),
                    of_bound=found.makespan_s / found.bound_s,
                    program_of_bound=found.program_s / found.bound_s,
                    path_share=graph.critical_path_s() / graph.work_s,
                    peak_of_cap=None if cap is None else max(found.peaks_bytes) / cap,
                    same_bits=all(map(torch.equal, expected, _step(network, placed, inputs))),
                    balance=max(seconds) / fair_s,
                    pipeline_of_bound=pipeline_s(seconds, MICRO_BATCHES) / perfect_s,
                )
            )
    return rows


def pipeline_s(stage_s: Sequence[float], micro_batches: int) -> float:
    """Return seconds of a step of so many micro-batches through stages of these seconds, then an update of all.

    Each stage is busy with one at a time, and the slowest one is never idle in between; nothing is sent.
    """
    return sum(stage_s) + (micro_batches - 1) * max(stage_s, default=0.0)


def _placements(
    graph: CostGraph, devices: int, alone_bytes: int, shares: Sequence[float], effort: int
) -> list[tuple[float | None, int | None, PlacedOps]]:
    found: list[tuple[float | None, int | None, PlacedOps]] = [
        (None, None, place(graph, [None] * devices, effort=effort))
    ]
    for share in shares:
        cap = int(share * alone_bytes)
        try:
            return [*found, (share, cap, place(graph, [cap] * devices, effort=effort))]
        except Infeasible:
            continue
    return found


def _step(network: fx.GraphModule, forward: Callable[..., Any], inputs: Tensor) -> list[Tensor]:
    """Take a step from the same state each time; return what it computed and leave no trace."""
    before = deepcopy(network.state_dict())
    torch.manual_seed(1)
    scores: Tensor = forward(inputs)
    nn.functional.cross_entropy(scores.flatten(0, -2), torch.arange(scores.flatten(0, -2).shape[0]) % 2).backward()  # type: ignore[no-untyped-call]
    found = [scores.detach(), *(one.grad for one in network.parameters() if one.grad is not None)]
    found += [one.clone() for one in network.buffers()]
    network.zero_grad(set_to_none=True)
    network.load_state_dict(before)
    return found


ABOUT = "Networks on several devices under hard limits of memory (ParDNN): balance, peaks and bits."


def described(rows: Sequence[PlacedRow], larger: Sequence[LargeRow]) -> dict[str, Any]:
    """Tables and figures."""
    cells = [
        (
            row.network,
            str(row.devices),
            "none" if row.cap_share is None else f"{row.cap_share:.0%}",
            f"{row.of_bound:.3f}",
            f"{row.program_of_bound:.3f}",
            "" if row.peak_of_cap is None else f"{row.peak_of_cap:.3f}",
            f"{row.balance:.3f}",
            f"{row.pipeline_of_bound:.3f}",
            "the same" if row.same_bits else "**differ**",
        )
        for row in rows
    ]
    large_cells = [
        (
            f"{row.operators:,}",
            str(row.devices),
            "none" if row.cap_bytes is None else memory_text(row.cap_bytes),
            f"{row.cpu_s:.1f} s",
            f"{row.of_bound:.3f}",
            "" if row.peak_of_cap is None else f"{row.peak_of_cap:.3f}",
        )
        for row in larger
    ]
    readings = dict.fromkeys((row.network, row.reading, row.path_share) for row in rows)
    return {
        "about": ABOUT,
        "passed": all(row.same_bits and row.of_bound <= MOST_OF_BOUND and (row.peak_of_cap or 0) <= 1 for row in rows)
        and all(row.cpu_s <= MOST_LARGE_S and (row.peak_of_cap or 0) <= 1 for row in larger),
        "thresholds": [],
        "notes": [
            f"Promised: a makespan of at most {MOST_OF_BOUND} of max(critical path, work / devices), no peak above its "
            "limit, and the bits of outputs, gradients and buffers. Peaks are those of the liveness model.",
            "Operators are measured by the clock: on a busy machine their seconds, and so balance and makespans, vary.",
            "Such networks are nearly chains, so a batch gets hardly faster on several devices; its memory is shared "
            f"out. Stages are for {MICRO_BATCHES} micro-batches, by perfect balance.",
            *(f"{name}: {reading}. Critical path: {path:.0%} of the work." for name, reading, path in readings),
        ],
        "tables": [
            {
                "title": "By network, devices, and the tightest limit of each device that was kept:",
                "rows": cells,
                "heads": (
                    "network",
                    "devices",
                    "limit, of one device's peak",
                    "makespan by bound",
                    "in program order",
                    "peak by limit",
                    "slowest stage by a fair share",
                    "pipeline by balance",
                    "bits",
                ),
            },
            {
                "title": f"A large graph, drawn at random (promised: {MOST_LARGE_S:g} s):",
                "rows": large_cells,
                "heads": (
                    "operators",
                    "devices",
                    "limit of each",
                    "processor time",
                    "makespan by bound",
                    "peak by limit",
                ),
            },
        ],
        "rows": [asdict(row) for row in rows],
        "large": [asdict(row) for row in larger],
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(described(measure(), large())) + "\n")
