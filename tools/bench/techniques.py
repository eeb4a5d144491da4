"""What each technique saves and costs: memory of a step, seconds per step, accuracy, bits; alone and in a hybrid.

A sub-model with a technique, the same one without, and a small companion take turns step by step in one hybrid, so
that a slow machine slows all. Then each trains alone, where living tensors are counted: the bits have to be those of
the hybrid. `tools.bench.techniques_page` makes docs/TECHNIQUES.md of the result.

To add a row: an entry in `VARIANTS` or in `TOGETHER`. A technique without an entry is measured with its defaults.
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import torch

from tools.bench import data
from tools.bench.networks import Scale
from tools.bench.overhead import keep_freed_memory
from tools.bench.prepare import prepare
from tools.bench.scenarios import Case, Scenario, Task
from unifiednn_core.base.paths import Home
from unifiednn_core.data.datasets import Dataset, read_dataset
from unifiednn_core.engine.engine import Engine
from unifiednn_core.engine.events import Ended, EpochDone, Report, Stepped
from unifiednn_core.engine.hybrid import HybridModel
from unifiednn_core.engine.resident_data import ResidentData
from unifiednn_core.engine.submodel import SubModel
from unifiednn_core.formats import registry
from unifiednn_core.formats.base import Definition
from unifiednn_core.formats.weights import state_sha256
from unifiednn_core.preflight.check import check
from unifiednn_core.preflight.report import SubModelReport
from unifiednn_core.scheduling.company import LEAST_GAIN
from unifiednn_core.scheduling.peaks import slowdown
from unifiednn_core.scheduling.registry import policy_named
from unifiednn_core.spec.run import RunSpec, SubModelSpec
from unifiednn_core.spec.techniques import TECHNIQUES, name_of
from unifiednn_core.techniques.live_bytes import LiveBytes

Asked = tuple[Mapping[str, Any], ...]
"""The techniques of one row, as a spec writes them."""
VARIANTS: Mapping[str, tuple[Mapping[str, Any], ...]] = {
    "compression": ({}, {"bfloat16": True}),
    "virtual_nodes": ({"nodes": 2}, {"nodes": 8}, {"nodes": 4, "shares": [5, 1, 1, 1]}),
    "dropit": ({"keep": 0.1}, {"keep": 0.2}, {"keep": 0.1, "form": "published"}),
}
"""Parameters with which a technique is measured, by its name."""
TOGETHER: tuple[Asked, ...] = (
    ({"name": "compression"}, {"name": "dropit", "keep": 0.1}),
    ({"name": "virtual_nodes", "nodes": 4}, {"name": "compression"}),
)
"""Several techniques at once."""
PLAIN, COMPANION = "plain", "companion"
_SEED = 7
MOST_TEXT = 300
_ALL = 10**9
TASKS: Mapping[Scale, tuple[Task, ...]] = {
    "cpu": (
        Task(
            name="lenet",
            network="lenet",
            data="mnist",
            epochs=3,
            batch_size=128,
            learning_rate=0.05,
            train=2_048,
            test=1_000,
            seed=_SEED,
        ),
        Task(
            name="resnet18",
            network="resnet18",
            data="cifar10",
            epochs=2,
            batch_size=64,
            learning_rate=0.05,
            train=512,
            test=256,
            seed=_SEED,
        ),
        Task(
            name="transformer",
            network="xlm_roberta",
            data="sst2",
            epochs=2,
            batch_size=32,
            learning_rate=1e-3,
            optimizer="adam",
            train=512,
            test=256,
            seed=_SEED,
        ),
    ),
    "paper": (
        Task(name="lenet", network="lenet", data="mnist", epochs=2, batch_size=256, learning_rate=0.05, seed=_SEED),
        Task(
            name="resnet18",
            network="resnet18",
            data="cifar10",
            epochs=5,
            batch_size=128,
            learning_rate=0.05,
            seed=_SEED,
        ),
        Task(
            name="transformer",
            network="xlm_roberta",
            data="sst2",
            epochs=1,
            batch_size=16,
            learning_rate=1e-5,
            optimizer="adam",
            train=3_200,
            test=800,
            seed=_SEED,
        ),
    ),
}
_COMPANION = Task(
    name=COMPANION,
    network="lenet",
    data="mnist",
    epochs=1,
    batch_size=64,
    learning_rate=0.05,
    train=1_024,
    test=64,
    seed=11,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One figure without techniques and with them; None where it is not known."""

    without: float | None
    given: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What was measured of one or several techniques on one network."""

    steps: int
    exact: bool
    """As the techniques promise."""
    predicted_bytes: Pair
    """Temporary memory of a step as the check predicts it."""
    step_bytes: Pair
    """The same as measured: living tensors on a CPU, torch's allocator on a GPU."""
    rest_bytes: Pair
    """Weights and optimizer state on the device between turns."""
    step_s: Pair
    """Median; CPU seconds of the thread on a CPU."""
    accuracy: Pair
    loss: Pair
    """Of the last epoch's training."""
    same_bits: bool
    """Whether the trained weights are those without techniques."""
    same_alone: bool
    """Whether they are those of the sub-model alone."""
    others_unchanged: bool
    """Whether the companion has the bits that it has beside the plain sub-model alone."""

    @property
    def holds(self) -> bool:
        """Whether the bits are as promised."""
        return self.same_alone and self.others_unchanged and (self.same_bits or not self.exact)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One or several techniques on one network."""

    network: str
    batch_size: int
    techniques: Asked
    figures: Figures | None = None
    told: tuple[str, ...] = ()
    """Findings of the check."""
    failed: str | None = None
    """Why there are no figures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InTurn:
    """Two of one network that step at once, and climb to the peaks of their steps in turn (`scheduling.peaks`)."""

    network: str
    batch_size: int
    peak_bytes: int
    """Gradients and temporary memory of a step of one."""
    together_bytes: int
    """The least in which both may step at once, as company has to pay."""
    share: float
    """Part of a step that excludes the other's."""


@dataclass(frozen=True, slots=True)
class Made:
    """A task with its files read."""

    spec: SubModelSpec
    definition: Definition
    train: Dataset
    test: Dataset

    def named(self, name: str, techniques: Asked = ()) -> SubModelSpec:
        """The spec under another name, with these techniques; raises a validation error if they are not valid."""
        document = self.spec.model_dump(mode="json")
        document["hyperparameters"]["techniques"] = [dict(one) for one in techniques]
        return SubModelSpec.model_validate(document | {"name": name})


@dataclass(frozen=True, slots=True)
class Trained:
    """What one training in an engine left behind, by sub-model."""

    sha256: Mapping[str, str]
    accuracy: Mapping[str, float | None]
    loss: Mapping[str, float | None]
    step_s: Mapping[str, float]
    step_bytes: Mapping[str, int | None]
    rest_bytes: Mapping[str, int]


def arms() -> tuple[Asked, ...]:
    """All rows, in the order of the table of techniques."""
    alone = [({"name": name, **given},) for name in map(name_of, TECHNIQUES) for given in VARIANTS.get(name, ({},))]
    return (*alone, *TOGETHER)


def measure(
    scale: Scale,
    folder: Path,
    asked: Sequence[Asked],
    *,
    device: str,
    time_s: float | None = None,
    tasks: Sequence[Task] | None = None,
) -> tuple[list[Row], bool]:
    """Measure each of these techniques on each network; returns the rows, and whether the time was enough for all."""
    keep_freed_memory()
    until_s = time.monotonic() + (time_s or _ALL)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="unifiednn-techniques-") as name:
        base, home = Path(name), Home(Path(name) / "home")
        home.create()
        companion = _made(_COMPANION, scale, folder, base, device)
        known = []
        for task in tasks or TASKS[scale]:
            made = _made(task, scale, folder, base, device)
            plain = made.named(PLAIN)
            apart = _trained([(plain, made)], device, counts=True)
            beside = _trained([(plain, made), (companion.spec, companion)], device)
            known.append((task, made, (apart, beside)))
        for one, (task, made, trained) in product(asked, known):  # a run that is cut off has every network
            if time.monotonic() > until_s:
                return rows, False
            rows.append(_row(task, made, one, companion, trained, base, home, device))
            sys.stderr.write(f"{task.name} {list(one)}: {rows[-1].failed or 'measured'}\n")
    return rows, True


def in_turn(scale: Scale, folder: Path, tasks: Sequence[Task] | None = None) -> list[InTurn]:
    """What two of each network need that climb in turn, by the check's count on a CPU; none that could not pay."""
    found = []
    with tempfile.TemporaryDirectory(prefix="unifiednn-peaks-") as name:
        base, home = Path(name), Home(Path(name) / "home").create()
        for task in tasks or TASKS[scale]:
            spec = _made(task, scale, folder, base, "cpu").named(PLAIN)
            need = check(RunSpec(device="cpu", submodels=(spec,)), base, home).submodels[PLAIN].memory
            falls = [] if need is None else need.falls
            pays = [fall for fall in falls if 2 / slowdown(fall.share, fall.share) >= LEAST_GAIN]
            if need is not None and pays:
                peak_bytes = need.gradients_bytes + need.transient_bytes
                found.append(
                    InTurn(
                        network=task.name,
                        batch_size=task.batch_size,
                        peak_bytes=peak_bytes,
                        together_bytes=peak_bytes + pays[-1].bytes,
                        share=pays[-1].share,
                    )
                )
    return found


def _row(
    task: Task,
    made: Made,
    asked: Asked,
    companion: Made,
    known: tuple[Trained, Trained],
    base: Path,
    home: Home,
    device: str,
) -> Row:
    """Check and train one sub-model with techniques; an error stands in its row."""
    row = Row(network=task.name, batch_size=task.batch_size, techniques=asked)
    try:
        spec = made.named("-".join(str(one["name"]) for one in asked), asked)
        report = check(RunSpec(device=device, submodels=(spec,)), base, home)
        row = replace(row, told=tuple(finding.message for finding in report.findings))
        if report.has_errors:
            return replace(row, failed="The check refuses it.")
        alone = _trained([(spec, made)], device, counts=True)
        both = _trained([(spec, made), (made.named(PLAIN), made), (companion.spec, companion)], device)
    except (RuntimeError, ValueError) as error:
        return replace(row, failed=" ".join(str(error).split())[:MOST_TEXT])
    return replace(row, figures=_figures(spec, report.submodels[spec.name], alone, both, known))


def _figures(
    spec: SubModelSpec, facts: SubModelReport, alone: Trained, both: Trained, known: tuple[Trained, Trained]
) -> Figures:
    """Figures of a sub-model alone and beside a plain one; `known` is the plain one alone and beside the companion."""
    (apart, beside), name, without = known, spec.name, facts.without_techniques

    def pair(values: Mapping[str, Any]) -> Pair:
        return Pair(without=values[PLAIN], given=values[name])

    return Figures(
        steps=facts.steps_per_epoch * spec.hyperparameters.epochs,
        exact=all(one.exact for one in spec.hyperparameters.techniques),
        predicted_bytes=Pair(
            without=None if without is None else without.transient_bytes,
            given=None if facts.memory is None else facts.memory.transient_bytes,
        ),
        step_bytes=Pair(without=apart.step_bytes[PLAIN], given=alone.step_bytes[name]),
        rest_bytes=pair(both.rest_bytes),
        step_s=pair(both.step_s),
        accuracy=pair(both.accuracy),
        loss=pair(both.loss),
        same_bits=both.sha256[name] == both.sha256[PLAIN],
        same_alone=both.sha256[name] == alone.sha256[name],
        others_unchanged=both.sha256[COMPANION] == beside.sha256[COMPANION],
    )


def _made(task: Task, scale: Scale, folder: Path, base: Path, device: str) -> Made:
    scenario = Scenario(name="techniques", scale=scale, about="", cases=(), device=device, threads=1)
    [spec] = prepare(scenario, Case(name=task.name, tasks=(task,)), folder, base).spec.submodels
    model = base / spec.model
    known = registry.sniff(model)
    if known is None or spec.test_data is None:
        raise ValueError(f"{model.name} cannot be read, or has no test data")
    return Made(
        spec,
        known.read(model, spec.architecture),
        read_dataset(base / spec.train_data),
        read_dataset(base / spec.test_data),
    )


def _trained(asked: Sequence[tuple[SubModelSpec, Made]], device: str, *, counts: bool = False) -> Trained:
    """Train sub-models to their end in one engine, in turns of one step; `counts` their living tensors."""
    place = torch.device(device, 0) if device == "cuda" else torch.device(device)
    resident = ResidentData(place)
    parts = [
        SubModel(
            spec,
            made.definition,
            seed=spec.hyperparameters.seed or 0,
            train=resident.hold(spec.train_data, partial(_same, made.train)),
            test=resident.hold(str(spec.test_data), partial(_same, made.test)),
            device=place,
        )
        for spec, made in asked
    ]
    watch = _Watch(place, LiveBytes() if counts and device == "cpu" else None)
    policy = policy_named("round_robin", {"unit": "steps", "amount": 1})
    engine = Engine(HybridModel(parts), policy, device=place, threads=torch.get_num_threads(), report=watch.take)
    watch.footprints = engine.footprints
    with watch.live or nullcontext():
        engine.run()
    return watch.trained()


def _same(held: Dataset) -> Dataset:
    return held


class _Watch:
    """Notes the reports of an engine: seconds and bytes of each step, and how each sub-model ended."""

    def __init__(self, device: torch.device, live: LiveBytes | None):
        self.live, self._device = live, device
        self.footprints: Callable[[], Mapping[str, Any]] = dict
        self._ended: dict[str, Ended] = {}
        self._figures: dict[str, tuple[float | None, float | None]] = {}
        self._step_s: dict[str, list[float]] = {}
        self._step_bytes: dict[str, list[int]] = {}
        self._rest: dict[str, int] = {}
        self._since_s = self._now_s()

    def take(self, report: Report) -> None:
        """Note one report."""
        if isinstance(report, Stepped):
            now_s = self._now_s()
            self._step_s.setdefault(report.submodel, []).append(now_s - self._since_s)
            if (size := self._peak_bytes()) is not None:
                self._step_bytes.setdefault(report.submodel, []).append(size)
            for name, one in self.footprints().items():
                if name != report.submodel:
                    self._rest[name] = one.weights_bytes + one.optimizer_bytes if one.placed else 0
        elif isinstance(report, EpochDone):
            self._figures[report.submodel] = (report.figures.test_accuracy, report.figures.train_loss)
        elif isinstance(report, Ended):
            if report.cause:
                raise RuntimeError(f"{report.submodel}: {report.cause}")
            self._ended[report.submodel] = report
        self._begin()

    def trained(self) -> Trained:
        """All of it; the first step, which loads kernels and makes the optimizer's state, does not count."""
        return Trained(
            {name: state_sha256(one.state_dict or {}) for name, one in self._ended.items()},
            {name: accuracy for name, (accuracy, _) in self._figures.items()},
            {name: loss for name, (_, loss) in self._figures.items()},
            {name: median(took[1:] or took) for name, took in self._step_s.items()},
            {name: max(self._step_bytes.get(name, [0])[1:] or [0]) or None for name in self._step_s},
            {name: self._rest.get(name, 0) for name in self._step_s},
        )

    def _now_s(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
            return time.perf_counter()
        return time.thread_time()

    def _peak_bytes(self) -> int | None:
        """Peak of the step just done, without what is held after it."""
        if self._device.type == "cuda":
            held = torch.cuda.memory_allocated(self._device)
            return torch.cuda.max_memory_allocated(self._device) - held
        if self.live is None or not self.live.timeline:
            return None
        return max(self.live.timeline) - self.live.current_bytes

    def _begin(self) -> None:
        if self.live is not None:
            self.live.timeline = []
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)
        self._since_s = self._now_s()


ABOUT = (
    "What each technique saves and costs: a sub-model with it and one without take turns step by step in a hybrid, "
    "beside a LeNet whose bits must not change."
)


def described(rows: Sequence[Row], pairs: Sequence[InTurn] = (), *, complete: bool, scale: Scale) -> dict[str, Any]:
    """Tables and figures; promised are exact bits where a technique promises them, and those of all others."""
    return {
        "scale": scale,
        "about": ABOUT,
        "passed": all(row.figures.holds for row in rows if row.figures is not None),
        "complete": complete,
        "thresholds": [],
        "notes": ["Temporary memory of a step: without weights, gradients, optimizer state and data."],
        "measured": [asdict(row) for row in rows],
        "in_turn": [asdict(pair) for pair in pairs],
    }


if __name__ == "__main__":
    on_gpu = torch.cuda.is_available()
    asked_scale: Scale = "paper" if on_gpu else "cpu"
    limit_s = float(sys.argv[2]) if len(sys.argv) > 2 else None
    found, whole = measure(
        asked_scale, data.folder_of(None), arms(), device="cuda" if on_gpu else "cpu", time_s=limit_s
    )
    climbing = [] if on_gpu else in_turn(asked_scale, data.folder_of(None))
    sys.stdout.write(json.dumps(described(found, climbing, complete=whole, scale=asked_scale)) + "\n")
