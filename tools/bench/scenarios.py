"""The workloads: those of the paper, and many small networks. Frozen values, no torch."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from tools.bench.networks import SCALES, Scale
from unifiednn_core.base.errors import BadInput
from unifiednn_core.spec.run import ALL_BASELINES, BASELINES, Mode

Figure = Literal["memory", "makespan", "mean_turnaround", "cpu_seconds"]
ALL = 10**9  # samples: all


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One sub-model of a workload."""

    name: str
    network: str
    """Name in `networks.NETWORKS`."""
    data: str
    """Name in `data.SOURCES`."""
    epochs: int
    batch_size: int
    learning_rate: float
    optimizer: str = "sgd"
    lr_decay: float | None = None
    """Factor of the learning rate after each epoch."""
    priority: int = 0
    train: int = ALL
    """Most training samples."""
    test: int = ALL
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """A promised upper limit for the median of a ratio hybrid / baseline."""

    against: Mode
    figure: Figure
    at_most: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One hybrid under one or several policies, and its baselines."""

    name: str
    tasks: tuple[Task, ...]
    policies: tuple[Mapping[str, Any], ...] = ({"name": "fcfs"},)
    baselines: tuple[Mode, ...] = BASELINES
    thresholds: tuple[Threshold, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One bench at one scale."""

    name: str
    scale: Scale
    about: str
    cases: tuple[Case, ...]
    device: str
    threads: int
    notes: tuple[str, ...] = ()
    """Notes for readers of the result."""


def _vision(scale: Scale, epochs: tuple[int, int, int], samples: tuple[int, int]) -> tuple[Task, ...]:
    """LeNet, ResNet18 and the ResNet-34 that the paper calls ResNet50; `samples` of MNIST and CIFAR-10."""
    digits, images = samples if scale == "cpu" else (ALL, ALL)
    lenet = Task(name="lenet", network="lenet", data="mnist", epochs=epochs[0], batch_size=256, learning_rate=0.01,
                 priority=1, train=digits, test=digits // 6, seed=1)  # fmt: skip
    resnet18 = Task(name="resnet18", network="resnet18", data="cifar10", epochs=epochs[1], batch_size=128,
                    learning_rate=0.001, priority=2, train=images, test=images // 4, seed=2)  # fmt: skip
    resnet34 = replace(resnet18, name="resnet50", network="resnet34", epochs=epochs[2], priority=3, seed=3)
    return lenet, resnet18, resnet34


def _paper_vision(scale: Scale) -> tuple[Case, ...]:
    epochs = (20, 100, 120) if scale == "paper" else (3, 1, 1)
    promised = (
        Threshold(against="concurrent", figure="memory", at_most=0.50),
        Threshold(against="concurrent", figure="makespan", at_most=0.90),
        Threshold(against="concurrent", figure="cpu_seconds", at_most=0.65),
        Threshold(against="sequential", figure="memory", at_most=1.10),
        Threshold(against="sequential", figure="makespan", at_most=0.60),
    )
    tasks, thresholds = _vision(scale, epochs, (12_000, 768)), promised if scale == "cpu" else ()
    return (Case(name="vision", tasks=tasks, policies=({"name": "priority"},), thresholds=thresholds),)


def _paper_mixed(scale: Scale) -> tuple[Case, ...]:
    few = scale == "cpu"
    tasks = (
        Task(name="transformer", network="transformer_lm", data="wikitext2", epochs=10, batch_size=10,
             learning_rate=0.5, lr_decay=0.95, priority=1, train=300 if few else ALL, test=100 if few else ALL,
             seed=1),
        Task(name="xlm_roberta", network="xlm_roberta", data="sst2", epochs=5, batch_size=16, learning_rate=1e-5,
             optimizer="adam", priority=2, train=640 if few else ALL, test=160 if few else ALL, seed=2),
        Task(name="vgg16_cbam", network="vgg16_cbam", data="cifar10" if few else "cifar10_224", epochs=10,
             batch_size=64, learning_rate=0.002, priority=3, train=512 if few else 9_469, test=128 if few else ALL,
             seed=3),
    )  # fmt: skip
    return (Case(name="mixed", tasks=tasks, policies=({"name": "priority"},)),)


def _paper_schedulers(scale: Scale) -> tuple[Case, ...]:
    epochs = (10, 25, 50) if scale == "paper" else (2, 5, 10)
    last_first = {"lenet": 3, "resnet18": 2, "resnet50": 1}  # the paper's order of priorities in this experiment
    tasks = tuple(replace(task, priority=last_first[task.name]) for task in _vision(scale, epochs, (6_000, 256)))
    policies = ({"name": "fcfs"}, {"name": "priority"}, {"name": "sjf", "by": "epochs"}, {"name": "round_robin"})
    return (Case(name="schedulers", tasks=tasks, policies=policies),)


def _lenets(count: int, scale: Scale, epochs: int, digits: int) -> tuple[Task, ...]:
    """LeNets on one data set, each with its own seed and learning rate."""
    train = digits if scale == "cpu" else ALL
    return tuple(
        Task(name=f"lenet-{place + 1:02}", network="lenet", data="mnist", epochs=epochs, batch_size=256,
             learning_rate=round(0.002 * 50 ** (place / max(1, count - 1)), 5), train=train, test=train // 6,
             seed=place + 1)
        for place in range(count)
    )  # fmt: skip


def _equal_small(scale: Scale) -> tuple[Case, ...]:
    epochs = 20 if scale == "paper" else 2
    promised = (Threshold(against="concurrent", figure="memory", at_most=0.42),) if scale == "cpu" else ()
    return (
        Case(name="three", tasks=_lenets(3, scale, epochs, 12_000), baselines=ALL_BASELINES, thresholds=promised),
        Case(name="eight", tasks=_lenets(8, scale, epochs, 12_000)),
    )


def _sweep_32(scale: Scale) -> tuple[Case, ...]:
    return (Case(name="sweep", tasks=_lenets(32, scale, 20 if scale == "paper" else 1, 6_000)),)


_CPU_NOTE = (
    "Narrowed networks, short trainings, one CPU thread per process: seconds and bytes say nothing about the paper's,"
    " and ratios only in kind. On two cores a concurrent baseline uses both and the hybrid one, so what"
    " the hybrid saves is start-up, contention and doubled memory; the longer a training, the smaller that share."
)
_SGD_NOTE = (
    "SGD without momentum, and no LR scheduler: table 2 names neither; the text says that the ResNets had an LR"
    " scheduler, but not which."
)
_CASES: Mapping[str, tuple[Callable[[Scale], tuple[Case, ...]], str, tuple[str, ...]]] = {
    "paper-vision": (
        _paper_vision,
        "The paper's first experiment: LeNet on MNIST, ResNet18 on CIFAR-10 and the ResNet that it calls ResNet50,"
        " in that order of priority.",
        (_SGD_NOTE,),
    ),
    "paper-mixed": (
        _paper_mixed,
        "The paper's second experiment: a Transformer language model, XLM-RoBERTa and VGG16 with CBAM, in that order"
        " of priority.",
        (
            "The language model's learning rate is 0.5, not 5.0 as in table 2: with 5.0 the loss is NaN within"
            " the first 30 steps, because nothing clips the gradients, as PyTorch's tutorial does.",
            "All weights start untrained; the paper fine-tunes trained ones of VGG16 and XLM-RoBERTa.",
        ),
    ),
    "paper-schedulers": (
        _paper_schedulers,
        "The paper's third experiment: the three networks of the first one for 10, 25 and 50 epochs under all four"
        " policies; priorities are the other way round, the largest network first.",
        (_SGD_NOTE,),
    ),
    "equal-small": (
        _equal_small,
        "Three and eight LeNets that learn from one data set at different learning rates.",
        (),
    ),
    "sweep-32": (_sweep_32, "A sweep: 32 LeNets that learn from one data set at different learning rates.", ()),
}


def names() -> tuple[str, ...]:
    """Names of the workloads."""
    return tuple(_CASES)


def scenario(name: str, scale: str) -> Scenario:
    """One workload; raises `BadInput` that lists the valid names."""
    if name not in _CASES:
        raise BadInput.of(
            "Bench", field="name", message=f"Unknown bench '{name}'.", remedy=f"Choose one of: {', '.join(_CASES)}."
        )
    known = next((valid for valid in SCALES if valid == scale), None)
    if known is None:
        raise BadInput.of(
            "Bench", field="scale", message=f"Unknown scale '{scale}'.", remedy=f"Choose: {' or '.join(SCALES)}."
        )
    make, about, notes = _CASES[name]
    device, threads, of_scale = ("cpu", 1, (_CPU_NOTE,)) if known == "cpu" else ("cuda", 4, ())
    return Scenario(
        name=name,
        scale=known,
        about=about,
        cases=make(known),
        device=device,
        threads=threads,
        notes=(*of_scale, *notes),
    )
