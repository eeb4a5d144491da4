"""The workloads: those of the paper, and equal small networks. Frozen values, no torch."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from sample_models.paper_networks import SCALES, Scale
from tools.bench.arms import Arm
from unifiednn_core.base.errors import BadInput
from unifiednn_core.spec.run import BASELINES, Mode

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
    arm: Arm = "plain"
    """How the baselines train."""
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


def _vision(epochs: tuple[int, int, int], digits: int = ALL, images: int = ALL) -> tuple[Task, ...]:
    """LeNet, ResNet18 and the ResNet-34 that the paper calls ResNet50; so many samples of MNIST and CIFAR-10."""
    lenet = Task(name="lenet", network="lenet", data="mnist", epochs=epochs[0], batch_size=256, learning_rate=0.01)
    resnet = Task(name="resnet18", network="resnet18", data="cifar10", epochs=0, batch_size=128, learning_rate=0.001)
    resnet = replace(resnet, train=images, test=images // 4)
    return (
        replace(lenet, priority=1, seed=1, train=digits, test=digits // 6),
        replace(resnet, priority=2, seed=2, epochs=epochs[1]),
        replace(resnet, priority=3, seed=3, epochs=epochs[2], name="resnet50", network="resnet34"),
    )


def _ways(policy: str) -> tuple[Hybrid, ...]:
    """As the product does it, cold and warm, and with one lane: what both give stands beside it."""
    cold = Hybrid(policy={"name": policy})
    return cold, replace(cold, start="warm"), replace(cold, lanes=1)


def _as_arm(case: Case, arm: Arm, title: str) -> Case:
    """The case with its first hybrid and its concurrent baseline as another arm."""
    plain = replace(case, hybrids=case.hybrids[:1], baselines=("concurrent",), thresholds=())
    return replace(plain, name=f"{case.name}, {title}", arm=arm)


def _paper_vision(scale: Scale) -> tuple[Case, ...]:
    tasks = _vision((20, 100, 120)) if scale == "paper" else _vision((3, 1, 1), 12_000, 768)
    vision = Case(name="vision", tasks=tasks, hybrids=_ways("priority"))
    resident = _as_arm(vision, "resident", "resident data")
    if scale == "paper":
        memory = Threshold(against="concurrent", figure="memory", at_most=0.40)
        return replace(vision, thresholds=(memory,)), resident, _as_arm(vision, "mps", "MPS")
    promised = (
        Threshold(against="concurrent", figure="memory", at_most=0.42),
        Threshold(against="concurrent", figure="cpu_seconds", at_most=0.58),
        Threshold(against="concurrent", figure="makespan", at_most=0.80),
        Threshold(against="concurrent", figure="makespan", at_most=0.65, hybrid=1),
        Threshold(against="sequential", figure="memory", at_most=1.05),
        Threshold(against="sequential", figure="makespan", at_most=0.50),
    )
    longer = replace(vision, name="vision, four times as long", tasks=_vision((12, 4, 4), 12_000, 768))
    longer = replace(longer, hybrids=vision.hybrids[:2], baselines=("concurrent",))
    return replace(vision, thresholds=promised), resident, longer


def _paper_mixed(scale: Scale) -> tuple[Case, ...]:
    few = scale == "cpu"
    text = Task(
        name="transformer", network="transformer_lm", data="wikitext2", epochs=10, batch_size=10, learning_rate=0.5
    )
    xlm = Task(name="xlm_roberta", network="xlm_roberta", data="sst2", epochs=5, batch_size=16, learning_rate=1e-5)
    images = "cifar10" if few else "cifar10_224"
    vgg = Task(name="vgg16_cbam", network="vgg16_cbam", data=images, epochs=10, batch_size=64, learning_rate=0.002)
    text = replace(text, lr_decay=0.95, priority=1, seed=1)
    xlm = replace(xlm, optimizer="adam", priority=2, seed=2)
    vgg = replace(vgg, priority=3, seed=3, train=9_469)
    if few:
        text, xlm = replace(text, train=300, test=100), replace(xlm, train=640, test=160)
        vgg = replace(vgg, train=512, test=128)
    return (Case(name="mixed", tasks=(text, xlm, vgg), hybrids=_ways("priority")[:2]),)


def _paper_schedulers(scale: Scale) -> tuple[Case, ...]:
    tasks = _vision((10, 25, 50)) if scale == "paper" else _vision((2, 5, 10), 6_000, 256)
    last_first = {"lenet": 3, "resnet18": 2, "resnet50": 1}  # the paper's order of priorities in this experiment
    tasks = tuple(replace(task, priority=last_first[task.name]) for task in tasks)
    policies = ({"name": "fcfs"}, {"name": "priority"}, {"name": "sjf", "by": "epochs"}, {"name": "round_robin"})
    return (Case(name="schedulers", tasks=tasks, hybrids=tuple(Hybrid(policy=policy) for policy in policies)),)


def _figure_14(scale: Scale) -> tuple[Case, ...]:
    """At full size as in table 2; on a CPU with learning rates and data with which accuracies rise above chance."""
    tasks = _vision((20, 100, 120)) if scale == "paper" else _vision((3, 3, 3), 6_000, 2_560)
    if scale == "cpu":
        tasks = tuple(replace(task, learning_rate=0.05) for task in tasks)
    plain = Case(name="PyTorch", tasks=tasks, hybrids=_ways("priority")[:1], baselines=("concurrent",))
    cases = [plain, replace(plain, name="PipeDream", arm="pipedream")]
    for name, form, arm in _DROPIT:
        dropped = tuple(replace(task, techniques=({"name": "dropit", "keep": 0.1, "form": form},)) for task in tasks)
        cases.append(replace(plain, name=name, arm=arm, tasks=dropped))
    return tuple(cases)


_DROPIT: tuple[tuple[str, str, Arm], ...] = (
    ("DropIT", "deduplicated", "dropit"),
    ("DropIT as published", "published", "dropit_published"),
)


def _equal_small(scale: Scale) -> tuple[Case, ...]:
    three, eight = (
        Case(name=name, tasks=_lenets(count, scale), hybrids=_ways("fcfs"))
        for name, count in (("three", 3), ("eight", 8))
    )
    if scale == "cpu":
        memory = Threshold(against="concurrent", figure="memory", at_most=0.42)
        makespan = Threshold(against="concurrent", figure="makespan", at_most=0.65)
        three = replace(three, thresholds=(memory, makespan))
        eight = replace(eight, thresholds=(replace(makespan, at_most=0.50),))
    return three, eight, _as_arm(three, "resident", "resident data"), _as_arm(eight, "resident", "resident data")


def _lenets(count: int, scale: Scale) -> tuple[Task, ...]:
    """LeNets on one data set, each with its own seed and learning rate."""
    epochs, train = (20, ALL) if scale == "paper" else (2, 12_000)
    like = Task(name="", network="lenet", data="mnist", epochs=epochs, batch_size=256, learning_rate=0.0)
    like = replace(like, train=train, test=train // 6)
    rates = [round(0.002 * 50 ** (place / (count - 1)), 5) for place in range(count)]
    return tuple(
        replace(like, name=f"lenet-{seed:02}", learning_rate=rate, seed=seed)
        for seed, rate in enumerate(rates, start=1)
    )


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
_FIGURE_14_NOTES = (
    "PipeDream cuts each network into 4 stages by measured times and trains them on one device, where nothing runs at"
    " once: it shows what its versions of weights and its batches under way cost there. The paper does not say how it"
    " ran PipeDream, which is made for several devices, on its one GPU.",
    "DropIT keeps 10% of the elements, in two forms: as published, each layer by itself, which saves nothing where ReLU"
    " keeps the same tensor; and packed once for all operators that save a tensor. The paper does not say what share"
    " it kept.",
    "PipeDream trains with weights of earlier steps and DropIT with approximate gradients of weights: they are judged"
    " by their accuracy, not by their bits. On a CPU learning rates are not those of table 2, with which few steps on a"
    " part of the data learn nothing.",
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
    "figure-14": (
        _figure_14,
        "The paper's figure 14: LeNet, ResNet18 and the ResNet that it calls ResNet50 under PipeDream, under DropIT, as"
        " a hybrid, and as a hybrid with DropIT.",
        (*_FIGURE_14_NOTES, _SGD_NOTE),
    ),
    "equal-small": (
        _equal_small,
        "Three and eight LeNets that learn from one data set at different learning rates.",
        (),
    ),
}
NAMES: tuple[str, ...] = tuple(_CASES)


def scenario(name: str, scale: str) -> Scenario:
    """One of `NAMES`; raises `BadInput` for an unknown scale."""
    known = next((valid for valid in SCALES if valid == scale), None)
    if known is None:
        remedy = f"Choose: {' or '.join(SCALES)}."
        raise BadInput.of("Bench", field="scale", message=f"Unknown scale '{scale}'.", remedy=remedy)
    make, about, notes = _CASES[name]
    cases = make(known)
    starts = {hybrid.start for case in cases for hybrid in case.hybrids}
    notes = (*((_CPU_NOTE,) if known == "cpu" else ()), *((_WARM_NOTE,) if "warm" in starts else ()), *notes)
    device, threads = ("cpu", 1) if known == "cpu" else ("cuda", 4)
    return Scenario(name=name, scale=known, about=about, cases=cases, device=device, threads=threads, notes=notes)
