"""The workloads: those of the paper, and many small networks. Frozen values, no torch."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from tools.bench import figure14
from tools.bench.networks import SCALES, Scale
from unifiednn_core.base.errors import BadInput
from unifiednn_core.spec.run import BASELINES, PLAIN_BASELINES, Mode

Figure = Literal["memory", "makespan", "mean_turnaround", "cpu_seconds"]
ALL = 10**9  # samples: all
_WITH_RESIDENT: tuple[Mode, ...] = (*BASELINES, "concurrent-resident")


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
    techniques: tuple[Mapping[str, Any], ...] = ()
    """As a spec writes them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hybrid:
    """One way to train a case as a hybrid."""

    policy: Mapping[str, Any]
    start: Literal["cold", "warm"] = "cold"
    """Warm: its worker is forked from the template, whose memory counts. No other arm has a template beside it."""
    lanes: int | None = None
    """How many sub-models may step at once; None for the default."""

    @property
    def name(self) -> str:
        """Its policy, and in what it differs from the default."""
        arguments = ", ".join(f"{name}={value}" for name, value in self.policy.items() if name != "name")
        parts = [f"{self.policy['name']} ({arguments})" if arguments else str(self.policy["name"])]
        parts += ["warm"] if self.start == "warm" else []
        parts += [f"lanes: {self.lanes}"] if self.lanes else []
        return ", ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """A promised upper limit for the median of a ratio hybrid / baseline."""

    against: Mode
    figure: Figure
    at_most: float
    hybrid: int = 0
    """Place of the hybrid among those of the case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """The same sub-models as one or several hybrids, and their baselines."""

    name: str
    tasks: tuple[Task, ...]
    hybrids: tuple[Hybrid, ...] = (Hybrid(policy={"name": "fcfs"}),)
    baselines: tuple[Mode, ...] = BASELINES
    thresholds: tuple[Threshold, ...] = ()
    profile: Literal["exact", "fast"] = "exact"
    mps: bool = False
    """Whether the baselines share the GPU by NVIDIA's MPS. Only where that is installed."""


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
    lenet = Task(
        name="lenet",
        network="lenet",
        data="mnist",
        epochs=epochs[0],
        batch_size=256,
        learning_rate=0.01,
        priority=1,
        train=digits,
        test=digits // 6,
        seed=1,
    )
    resnet18 = Task(
        name="resnet18",
        network="resnet18",
        data="cifar10",
        epochs=epochs[1],
        batch_size=128,
        learning_rate=0.001,
        priority=2,
        train=images,
        test=images // 4,
        seed=2,
    )
    resnet34 = replace(resnet18, name="resnet50", network="resnet34", epochs=epochs[2], priority=3, seed=3)
    return lenet, resnet18, resnet34


def _ways(policy: str) -> tuple[Hybrid, ...]:
    """As the product does it, cold and warm, and with one lane: what both give stands beside it."""
    cold = Hybrid(policy={"name": policy})
    return cold, replace(cold, start="warm"), replace(cold, lanes=1)


def _paper_vision(scale: Scale) -> tuple[Case, ...]:
    if scale == "paper":
        memory = Threshold(against="concurrent", figure="memory", at_most=0.40)
        vision = Case(
            name="vision",
            tasks=_vision(scale, (20, 100, 120), (0, 0)),
            hybrids=_ways("priority"),
            baselines=_WITH_RESIDENT,
            thresholds=(memory,),
        )
        return vision, _with_mps(vision)
    promised = (
        Threshold(against="concurrent", figure="memory", at_most=0.42),
        Threshold(against="concurrent", figure="cpu_seconds", at_most=0.58),
        Threshold(against="concurrent", figure="makespan", at_most=0.80),
        Threshold(against="concurrent", figure="makespan", at_most=0.65, hybrid=1),
        Threshold(against="sequential", figure="memory", at_most=1.05),
        Threshold(against="sequential", figure="makespan", at_most=0.50),
    )
    vision = Case(
        name="vision",
        tasks=_vision(scale, (3, 1, 1), (12_000, 768)),
        hybrids=_ways("priority"),
        baselines=_WITH_RESIDENT,
        thresholds=promised,
    )
    long = replace(
        vision,
        name="vision, four times as long",
        tasks=_vision(scale, (12, 4, 4), (12_000, 768)),
        hybrids=vision.hybrids[:2],
        baselines=("concurrent",),
        thresholds=(),
    )
    return vision, long


def _with_mps(case: Case) -> Case:
    """Its concurrent baseline under MPS, which lets kernels of several processes run at once."""
    return replace(
        case, name=f"{case.name}, MPS", hybrids=case.hybrids[:1], baselines=("concurrent",), thresholds=(), mps=True
    )


def _paper_mixed(scale: Scale) -> tuple[Case, ...]:
    few = scale == "cpu"
    tasks = (
        Task(
            name="transformer",
            network="transformer_lm",
            data="wikitext2",
            epochs=10,
            batch_size=10,
            learning_rate=0.5,
            lr_decay=0.95,
            priority=1,
            train=300 if few else ALL,
            test=100 if few else ALL,
            seed=1,
        ),
        Task(
            name="xlm_roberta",
            network="xlm_roberta",
            data="sst2",
            epochs=5,
            batch_size=16,
            learning_rate=1e-5,
            optimizer="adam",
            priority=2,
            train=640 if few else ALL,
            test=160 if few else ALL,
            seed=2,
        ),
        Task(
            name="vgg16_cbam",
            network="vgg16_cbam",
            data="cifar10" if few else "cifar10_224",
            epochs=10,
            batch_size=64,
            learning_rate=0.002,
            priority=3,
            train=512 if few else 9_469,
            test=128 if few else ALL,
            seed=3,
        ),
    )
    return (Case(name="mixed", tasks=tasks, hybrids=_ways("priority")[:2], baselines=_WITH_RESIDENT),)


def _paper_schedulers(scale: Scale) -> tuple[Case, ...]:
    epochs = (10, 25, 50) if scale == "paper" else (2, 5, 10)
    last_first = {"lenet": 3, "resnet18": 2, "resnet50": 1}  # the paper's order of priorities in this experiment
    tasks = tuple(replace(task, priority=last_first[task.name]) for task in _vision(scale, epochs, (6_000, 256)))
    policies = ({"name": "fcfs"}, {"name": "priority"}, {"name": "sjf", "by": "epochs"}, {"name": "round_robin"})
    return (Case(name="schedulers", tasks=tasks, hybrids=tuple(Hybrid(policy=policy) for policy in policies)),)


def _lenets(count: int, scale: Scale, epochs: int, digits: int) -> tuple[Task, ...]:
    """LeNets on one data set, each with its own seed and learning rate."""
    train = digits if scale == "cpu" else ALL
    return tuple(
        Task(
            name=f"lenet-{place + 1:02}",
            network="lenet",
            data="mnist",
            epochs=epochs,
            batch_size=256,
            learning_rate=round(0.002 * 50 ** (place / max(1, count - 1)), 5),
            train=train,
            test=train // 6,
            seed=place + 1,
        )
        for place in range(count)
    )


def _equal_small(scale: Scale) -> tuple[Case, ...]:
    epochs = 20 if scale == "paper" else 2
    promised = (
        Threshold(against="concurrent", figure="memory", at_most=0.42),
        Threshold(against="concurrent", figure="makespan", at_most=0.65),
        Threshold(against="concurrent", figure="makespan", at_most=0.50),
    )
    kept = promised if scale == "cpu" else ()
    return (
        Case(
            name="three",
            tasks=_lenets(3, scale, epochs, 12_000),
            hybrids=_ways("fcfs"),
            baselines=PLAIN_BASELINES,
            thresholds=kept[:2],
        ),
        Case(
            name="eight",
            tasks=_lenets(8, scale, epochs, 12_000),
            hybrids=_ways("fcfs"),
            baselines=_WITH_RESIDENT,
            thresholds=kept[2:],
        ),
    )


def _sweep_32(scale: Scale) -> tuple[Case, ...]:
    if scale == "cpu":
        return (Case(name="sweep", tasks=_lenets(32, scale, 1, 6_000)),)
    tenth = Threshold(against="concurrent", figure="makespan", at_most=0.10)
    sweep = Case(
        name="sweep",
        tasks=_lenets(32, scale, 20, 0),
        hybrids=_ways("fcfs"),
        baselines=_WITH_RESIDENT,
        thresholds=(tenth,),
    )
    fused = replace(sweep, name="sweep, fused", hybrids=sweep.hybrids[:1], baselines=("concurrent",), profile="fast")
    return sweep, fused, _with_mps(sweep)


def _figure_14(scale: Scale) -> tuple[Case, ...]:
    """At full size as in table 2; on a CPU with learning rates and data with which accuracies rise above chance."""
    like = Case(name="", tasks=(), hybrids=_ways("priority"))
    if scale == "paper":
        return figure14.cases(like, _vision(scale, (20, 100, 120), (0, 0)))
    tasks = (replace(task, learning_rate=0.05) for task in _vision(scale, (3, 3, 3), (6_000, 2_560)))
    return figure14.cases(like, tuple(tasks))


_CPU_NOTE = (
    "Narrowed networks, short trainings, one CPU thread per process: seconds and bytes say nothing about the paper's,"
    " and ratios only in kind. Of what the hybrid saves, start-up is a fixed amount: the longer a training, the smaller"
    " that share."
)
_WARM_NOTE = (
    "A hybrid starts cold unless it is called warm: then its worker is forked from the template, whose memory counts"
    " and whose own start does not."
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
    figure14.NAME: (_figure_14, figure14.ABOUT, (*figure14.NOTES, _SGD_NOTE)),
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
    if known == "cpu" and name == figure14.NAME:
        notes = (*notes, figure14.CPU_NOTE)
    cases = make(known)
    starts = {hybrid.start for case in cases for hybrid in case.hybrids}
    return Scenario(
        name=name,
        scale=known,
        about=about,
        cases=cases,
        device=device,
        threads=threads,
        notes=(*of_scale, *((_WARM_NOTE,) if "warm" in starts else ()), *notes),
    )
