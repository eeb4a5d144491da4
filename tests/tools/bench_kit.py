"""A small folder of data in the form of the real one, and comparisons as values."""

from pathlib import Path

import numpy as np

from tools.bench.prepare import Prepared
from tools.bench.runner import BenchRepeats
from tools.bench.scenarios import Case, Scenario, Task, Threshold
from unifiednn_core.spec.run import Mode, RunSpec, SubModelSpec
from unifiednn_core.views.comparison import Arm, ArmSubModel, Comparison, Spread, Verdict

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


def arm(mode: Mode, memory: float, makespan: float, repeats: int = 2) -> Arm:
    def spread(value: float) -> Spread:
        return Spread(tuple(value + 0.01 * repeat for repeat in range(repeats)))

    parts = tuple(
        ArmSubModel(
            name=task.name,
            number=number,
            wait_s=spread(1.0),
            service_s=spread(2.0),
            turnaround_s=spread(3.0),
            cpu_s=None,
            test_accuracy=0.5,
            train_loss=1.0,
            state_sha256=("ab",) * repeats,
        )
        for number, task in enumerate(TWO)
    )
    return Arm(
        mode=mode,
        run_ids=tuple(str(repeat) for repeat in range(repeats)),
        memory_bytes=Spread((memory,) * repeats),
        memory_source="process PSS",
        makespan_s=spread(makespan),
        mean_turnaround_s=spread(makespan),
        cpu_s=spread(makespan),
        gpu_s=None,
        submodels=parts,
    )


def measured(memory_ratio: float = 0.5, repeats: int = 2, withheld: str | None = None) -> BenchRepeats:
    """Two repeats of the tiny workload, one more was asked for."""
    ratio = Spread((memory_ratio,) * repeats)
    verdict = Verdict(
        mode="concurrent",
        memory_ratio=None if withheld else ratio,
        makespan_ratio=None if withheld else Spread((1.2, 1.4)),
        mean_turnaround_ratio=None if withheld else Spread((0.8, 1.1)),
        cpu_seconds_ratio=None if withheld else Spread((1.0, 1.0)),
        gpu_seconds_ratio=None,
        identical_weights=withheld is None,
        withheld_because=withheld,
    )
    comparison = Comparison(
        run_id="1",
        name="tiny",
        fingerprint="f",
        hybrid=arm("hybrid", memory_ratio * 2**30, 3.0, repeats),
        baselines={"concurrent": arm("concurrent", 2**30, 2.5, repeats)},
        verdicts={"concurrent": verdict},
    )
    parts = tuple(SubModelSpec(name=task.name, model="m", train_data="mnist.safetensors") for task in TWO)
    prepared = Prepared(CASE, RunSpec(submodels=parts, threads=1), Path(), ("MNIST.",))
    return BenchRepeats(
        repeats=repeats,
        cases=((prepared, (comparison,)),),
        parameters={"two": dict.fromkeys((task.name for task in TWO), 44_470)},
        notes=(),
    )
