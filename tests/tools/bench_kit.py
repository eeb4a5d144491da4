"""A small folder of data in the form of the real one, and comparisons as values."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from tests.ui import fake_arms
from tools.bench.prepare import Prepared
from tools.bench.runner import BenchRepeats
from tools.bench.scenarios import Case, Scenario, Task, Threshold
from unifiednn_core.spec.run import RunSpec, SubModelSpec
from unifiednn_core.views.comparison import Comparison, Spread

TWO = tuple(
    Task(name=f"lenet-{place}", network="lenet", data="mnist", epochs=2, batch_size=32, learning_rate=0.01, seed=place)
    for place in (1, 2)
)
CASE = Case(
    name="two",
    tasks=TWO,
    baselines=("concurrent",),
    thresholds=(Threshold(against="concurrent", figure="memory", at_most=0.9),),
)
SCENARIO = Scenario(name="tiny", scale="cpu", about="Two of a kind.", cases=(CASE,), device="cpu", threads=1)
ASKED = {
    "command": "python -m tools.bench tiny",
    "commit": "0123456789ab",
    "date": "2026-01-02",
    "machine": {"cpu": "CPU", "cores": 2, "memory_bytes": 2**34, "python": "3.11.7", "torch": "2.13.0", "os": "Linux"},
    "busy_before": 0.0,
}


def write_data(folder: Path, samples: int = 64) -> Path:
    """MNIST and CIFAR-10 with few samples."""
    folder.mkdir(exist_ok=True)
    generator = np.random.default_rng(0)
    for name, shape in (("mnist.npz", (28, 28)), ("cifar10_12k.npz", (32, 32, 3))):
        arrays = {}
        for part, count in (("train", samples), ("test", samples // 2)):
            arrays[f"{part}_inputs"] = generator.integers(0, 256, (count, *shape), dtype=np.uint8)
            arrays[f"{part}_targets"] = generator.integers(0, 10, count, dtype=np.uint8)
        np.savez(folder / name, **arrays)
    return folder


def measured(memory_ratio: float = 0.5, repeats: int = 2, withheld: str | None = None) -> BenchRepeats:
    """Two repeats of the tiny workload, one more was asked for."""
    verdict = fake_arms.verdict(ratios=(Spread((memory_ratio,) * repeats),) * 4)
    if withheld is not None:
        verdict = replace(fake_arms.withheld("concurrent", withheld), identical_weights=False)
    hybrid, concurrent = (fake_arms.arm(mode, repeats) for mode in ("hybrid", "concurrent"))
    names = {"run_id": "1", "name": "tiny", "fingerprint": "f"}
    baselines, verdicts = {"concurrent": concurrent}, {"concurrent": verdict}
    comparison = Comparison(**names, hybrid=hybrid, baselines=baselines, verdicts=verdicts)
    parts = tuple(SubModelSpec(name=task.name, model="m", train_data="mnist.safetensors") for task in TWO)
    prepared = Prepared(CASE, RunSpec(submodels=parts, threads=1), Path(), ("MNIST.",))
    return BenchRepeats(
        repeats=repeats,
        cases=((prepared, (comparison,)),),
        parameters={"two": dict.fromkeys((task.name for task in TWO), 44_470)},
        notes=(),
    )
