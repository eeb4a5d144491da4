"""Steps that are launched operator by operator beside the same steps replayed from a CUDA graph.

The six networks of table 2 at full size, with its batch sizes, on generated data. Both arms are the product's own
sub-models; they train the same number of steps and must end with the same bits. Only CUDA replays.
"""

import gc
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import torch
from torch import Tensor

from tools.bench.architectures import build
from tools.bench.networks import NETWORKS, Network
from unifiednn_core.data.datasets import Dataset
from unifiednn_core.engine import graphs
from unifiednn_core.engine.cuda_graphs import CudaRecorder, StepRecorder
from unifiednn_core.engine.device import exact_profile
from unifiednn_core.engine.resident_data import ResidentData
from unifiednn_core.engine.submodel import SubModel
from unifiednn_core.formats.base import Definition
from unifiednn_core.formats.weights import state_sha256
from unifiednn_core.spec.run import SubModelSpec

BATCHES = {"lenet": 256, "resnet18": 128, "resnet34": 128, "vgg16_cbam": 64, "transformer_lm": 10, "xlm_roberta": 16}
"""Of table 2; the second is printed for ResNet50, too."""
STEPS, FEWER_STEPS, LARGE = 100, 20, 10**8
MOST_OF_LENET = 0.4
"""Largest share of an eager step that a replayed one of LeNet may take."""
ABOUT = "Steps replayed from a CUDA graph, beside the same steps launched operator by operator."
HEADS = ("network", "batch", "eager step", "replayed step", "ratio", "CPU of a replayed step", "peak memory", "bits")
_SEED, _WORDS_FROM = 7, 4


RecorderOf = Callable[[SubModel], StepRecorder | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCost:
    """Medians over the repeats of one arm."""

    step_s: float
    cpu_s: float
    peak_bytes: int
    sha256: str
    refused: str | None = None


def measure(repeats: int, device: torch.device, recorder_of: RecorderOf) -> dict[str, tuple[StepCost, StepCost]]:
    """Eager and replayed steps of each network, one arm after the other."""
    with exact_profile(device, 1):
        return {
            name: (_arm(name, repeats, device, lambda _: None), _arm(name, repeats, device, recorder_of))
            for name in NETWORKS
        }


def _arm(name: str, repeats: int, device: torch.device, recorder_of: RecorderOf) -> StepCost:
    """Train one sub-model; each repeat is a stretch of steps, all of them within one epoch."""
    network = NETWORKS[name]
    count = STEPS if network.parameters < LARGE else FEWER_STEPS
    submodel = _submodel(name, network, device, steps=repeats * count + graphs.EAGER_STEPS + 1)
    recorder = recorder_of(submodel)
    step_s, cpu_s, refused = [], [], None
    _reset_peak(device)
    with submodel.world():
        for _ in range(graphs.EAGER_STEPS + 1):
            if recorder is not None and submodel.prepare_recording(recorder):
                told = submodel.record_step(recorder)
                refused = None if told is None else told.refused
            submodel.step()
        for _ in range(repeats):
            _wait(device)
            began_s, cpu_began_s = perf_counter(), process_time()
            for _ in range(count):
                submodel.step()
            _wait(device)
            step_s.append((perf_counter() - began_s) / count)
            cpu_s.append((process_time() - cpu_began_s) / count)
        submodel.step()  # half a batch, which is never replayed
    sha256, peak = state_sha256(submodel.module.state_dict()), _peak_bytes(device)
    submodel.release(empty=True)
    del submodel
    gc.collect()
    return StepCost(step_s=median(step_s), cpu_s=median(cpu_s), peak_bytes=peak, sha256=sha256, refused=refused)


def _submodel(name: str, network: Network, device: torch.device, steps: int) -> SubModel:
    """One with an epoch of so many steps, and half a batch."""
    batch, args = BATCHES[name], network.args("paper" if device.type == "cuda" else "cpu")
    data = _data(network, args, samples=batch * steps + batch // 2)
    hyper = {"epochs": 1, "batch_size": batch, "learning_rate": 0.001, "seed": _SEED}
    optimizer = {"optimizer": "adam"} if name == "xlm_roberta" else {}
    spec = SubModelSpec.model_validate(
        {"name": name, "model": "bench", "train_data": "bench", "hyperparameters": hyper | optimizer}
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_SEED)
        module = build(network.architecture, args)
    definition = Definition(
        format="bench", path=Path("bench"), build=lambda: module, parameters=network.parameters, weights_bytes=0
    )
    held = ResidentData(device).hold(name, lambda: data)
    return SubModel(spec, definition, seed=_SEED, train=held, test=None, device=device)


def _data(network: Network, args: dict[str, Any], samples: int) -> Dataset:
    generator = torch.Generator().manual_seed(_SEED)
    shape = (samples, *network.sample["paper" if args == network.args("paper") else "cpu"])
    if network.dtype == "int64":
        inputs: Tensor = torch.randint(_WORDS_FROM, args["vocabulary"], shape, generator=generator)
    else:
        inputs = torch.randn(shape, generator=generator)
    per_word = network.architecture == "transformer_lm"
    classes = args["vocabulary"] if per_word else args["classes"]
    return Dataset.of(inputs, torch.randint(0, classes, shape if per_word else shape[:1], generator=generator))


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _reset_peak(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def _peak_bytes(device: torch.device) -> int:
    """Reserved by torch at most: the pool of a graph counts there alone."""
    return torch.cuda.max_memory_reserved(device) if device.type == "cuda" else 0


def described(found: dict[str, tuple[StepCost, StepCost]]) -> dict[str, Any]:
    """Tables and figures."""
    rows = [_row(name, *arms) for name, arms in found.items()]
    eager, replayed = found["lenet"]
    same = all(one.sha256 == other.sha256 for one, other in found.values())
    return {
        "scale": "paper",
        "about": ABOUT,
        "passed": same and replayed.step_s <= MOST_OF_LENET * eager.step_s,
        "thresholds": [],
        "notes": [f"A replayed step of LeNet may take {MOST_OF_LENET} of an eager one; all bits are the same."],
        "tables": [{"title": "Medians over the repeats:", "heads": HEADS, "rows": rows}],
        "measured": {name: [asdict(arm) for arm in arms] for name, arms in found.items()},
    }


def _row(name: str, eager: StepCost, replayed: StepCost) -> tuple[str, ...]:
    return (
        NETWORKS[name].title,
        str(BATCHES[name]),
        f"{1e3 * eager.step_s:,.2f} ms",
        f"{1e3 * replayed.step_s:,.2f} ms" + (f" ({replayed.refused})" if replayed.refused else ""),
        f"{replayed.step_s / eager.step_s:.2f}",
        f"{1e3 * replayed.cpu_s:,.2f} ms",
        f"{eager.peak_bytes / 2**20:,.0f} → {replayed.peak_bytes / 2**20:,.0f} MiB",
        "same" if eager.sha256 == replayed.sha256 else "**differ**",
    )


if __name__ == "__main__":
    if not torch.cuda.is_available():
        sys.exit("torch sees no CUDA device here; steps are replayed on CUDA alone")
    cuda = torch.device("cuda", 0)
    document = described(measure(int(sys.argv[1]), cuda, lambda _: CudaRecorder(cuda)))
    document["notes"].append(f"Measured on {torch.cuda.get_device_name(cuda)} with torch {torch.__version__}.")
    sys.stdout.write(json.dumps(document) + "\n")
