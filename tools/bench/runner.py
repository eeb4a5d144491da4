"""Runs the arms of a workload through the service, one at a time, as a user would."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

from tools.bench import mps
from tools.bench.launcher import BenchLauncher
from tools.bench.prepare import Prepared, prepare
from tools.bench.scenarios import Scenario
from tools.machine import ToolFailed
from unifiednn_core.base.clock import RealClock
from unifiednn_core.base.errors import IllegalTransition
from unifiednn_core.base.paths import Home
from unifiednn_core.runtime.supervisor import Supervisor
from unifiednn_core.service.facade import Service
from unifiednn_core.spec.lifecycle import ENDED
from unifiednn_core.spec.run import Mode, RunSpec
from unifiednn_core.store import Store
from unifiednn_core.views.comparison import Comparison
from unifiednn_core.views.runs import RunView

POLL_S = 0.2
STOPPING_S = 30.0
# A baseline's step costs more than a hybrid's; this guess holds until it is measured.
DEARER = 1.5
PROBE_SEED = 10**6
_NO_MPS = "No arm ran under NVIDIA's MPS: nvidia-cuda-mps-control was not found."


@dataclass(frozen=True, slots=True)
class BenchArm:
    """One way to train a case: a baseline, or one of its hybrids."""

    mode: Mode
    hybrid: int = 0


@dataclass(frozen=True, slots=True)
class BenchProgress:
    """Progress of the bench."""

    text: str
    done: int
    """Finished arms."""
    arms: int
    share: float = 0.0
    """Progress of the current arm, 0 to 1."""


OnProgress = Callable[[BenchProgress], object]


@dataclass(frozen=True, slots=True)
class BenchRepeats:
    """All repeats so far."""

    repeats: int
    planned: int
    cases: tuple[tuple[Prepared, tuple[Comparison, ...]], ...]
    """Each with a comparison for each of its hybrids."""
    parameters: Mapping[str, Mapping[str, int]]
    """Weights of each sub-model, by case."""
    notes: tuple[str, ...]


def arms_of(prepared: Prepared) -> list[BenchArm]:
    """All arms of a case, the baselines first."""
    hybrids = [BenchArm("hybrid", place) for place in range(len(prepared.case.hybrids))]
    return [*(BenchArm(mode) for mode in prepared.case.baselines), *hybrids]


def rotated(arms: Sequence[BenchArm], repeat: int) -> list[BenchArm]:
    """Arms in the order of a repeat: each comes first, last and in between equally often."""
    start = repeat % len(arms)
    return [*arms[start:], *arms[:start]]


def measure(
    scenario: Scenario,
    data: Path,
    folder: Path,
    *,
    repeats: int,
    time_s: float | None = None,
    on_progress: OnProgress = lambda _: None,
) -> Iterator[BenchRepeats]:
    """Train everything in `folder`, which gets its own home; yields after each repeat.

    With `time_s`, cuts epochs to fit into about that time. Raises `BadInput` and `ToolFailed`.
    """
    until_s = None if time_s is None else time.monotonic() + time_s
    base = folder / "files"
    base.mkdir(parents=True, exist_ok=True)
    on_progress(BenchProgress("writing networks and data", 0, 1))
    known = [case for case in scenario.cases if not case.mps or mps.is_installed()]
    cases = [prepare(scenario, case, data, base) for case in known]
    notes: tuple[str, ...] = () if len(known) == len(scenario.cases) else (_NO_MPS,)
    with ExitStack() as stack:
        places = {place: stack.enter_context(_workplace(Home(folder / place))) for place in {*map(_place, cases)}}
        if until_s is not None:
            cases, repeats, cuts = _fitted(places, cases, repeats, until_s, on_progress)
            notes += cuts
        count, done = sum(len(arms_of(prepared)) for prepared in cases) * repeats, 0
        hybrids: dict[tuple[str, int], str] = {}
        for repeat in range(repeats):
            for prepared in cases:
                for arm in rotated(arms_of(prepared), repeat):
                    text = f"{prepared.case.name}, {_named(prepared, arm)}, repeat {repeat + 1} of {repeats}"
                    shown = _step_progress(on_progress, text, done, count)
                    run = _trained(places[_place(prepared)], prepared, arm, shown)
                    done += 1
                    if arm.mode == "hybrid":
                        hybrids[prepared.case.name, arm.hybrid] = run.run_id
            yield BenchRepeats(
                repeats=repeat + 1,
                planned=repeats,
                cases=tuple((prepared, _comparisons(places, prepared, hybrids)) for prepared in cases),
                parameters={
                    prepared.case.name: {
                        part.name: part.parameters
                        for part in places[_place(prepared)]
                        .service.runs.observe(hybrids[prepared.case.name, 0])
                        .submodels
                    }
                    for prepared in cases
                },
                notes=notes,
            )
            if until_s is not None and time.monotonic() > until_s:
                return


@dataclass(frozen=True, slots=True)
class _Workplace:
    """A service with its own home, and what starts its workers."""

    service: Service
    launcher: BenchLauncher


def _place(prepared: Prepared) -> str:
    """Baselines under MPS have a home of their own: they are other arms, with the same fingerprint."""
    return "home-mps" if prepared.case.mps else "home"


@contextmanager
def _workplace(home: Home) -> Iterator[_Workplace]:
    clock, launcher = RealClock(), BenchLauncher(home.create())
    store = Store.open(home, clock)
    service = Service(home, store, Supervisor(store, launcher, clock), clock)
    try:
        service.start_supervisor()
        yield _Workplace(service, launcher)
    finally:
        service.close()


def _comparisons(
    places: Mapping[str, _Workplace], prepared: Prepared, hybrids: Mapping[tuple[str, int], str]
) -> tuple[Comparison, ...]:
    compare = places[_place(prepared)].service.comparisons.comparison
    return tuple(compare(hybrids[prepared.case.name, place]) for place in range(len(prepared.case.hybrids)))


def _trained(
    place: _Workplace,
    prepared: Prepared,
    arm: BenchArm,
    on_share: Callable[[float], object],
    *,
    spec: RunSpec | None = None,
) -> RunView:
    """Train one arm to its end, of another spec if one is given; an interruption stops it."""
    service, shared = place.service, prepared.case.mps and arm.mode != "hybrid"
    place.launcher.warm = prepared.case.hybrids[arm.hybrid].start == "warm"
    with mps.running() if shared else nullcontext():
        run_id = service.comparisons.submit_arm(spec or prepared.trained_as(arm.hybrid), prepared.base, arm.mode)
        try:
            while (run := service.runs.observe(run_id)).state not in ENDED:
                if not service.supervisor_alive:
                    raise ToolFailed("The supervisor thread ended. Read the log, then run the bench again.")
                on_share(run.progress)
                time.sleep(POLL_S)
        except BaseException:
            _stop(service, run_id)
            raise
    return run


def _stop(service: Service, run_id: str) -> None:
    with suppress(IllegalTransition):  # it has ended in the same moment
        service.runs.discard(run_id)
    until_s = time.monotonic() + STOPPING_S
    while service.runs.observe(run_id).state not in ENDED and time.monotonic() < until_s:
        time.sleep(POLL_S)


def _fitted(
    places: Mapping[str, _Workplace],
    cases: list[Prepared],
    repeats: int,
    until_s: float,
    on_progress: OnProgress,
) -> tuple[list[Prepared], int, tuple[str, ...]]:
    """Cut epochs, then repeats, to fit; a probe of one epoch measures how long an epoch takes."""
    fixed_s = training_s = 0.0
    for prepared in cases:
        begun_s = time.monotonic()
        shown = _step_progress(on_progress, f"{prepared.case.name}, probe", 0, 1)
        run = _trained(places[_place(prepared)], prepared, BenchArm("hybrid"), shown, spec=_probe(prepared))
        service_s = {part.name: part.service_s for part in run.submodels}
        arms = arms_of(prepared)
        fixed_s += len(arms) * len(service_s) * max(0.0, time.monotonic() - begun_s - sum(service_s.values()))
        epochs = {part.name: part.hyperparameters.epochs for part in prepared.spec.submodels}
        training_s += DEARER * len(arms) * sum(epochs[name] * seconds for name, seconds in service_s.items())
    left_s = until_s - time.monotonic()
    for fewer in range(repeats, 0, -1):
        factor = (left_s / fewer - fixed_s) / training_s if training_s else 1.0
        shortest = 1 / min(part.hyperparameters.epochs for prepared in cases for part in prepared.spec.submodels)
        if factor >= shortest or fewer == 1:
            break
    notes = () if fewer == repeats else (f"{repeats} repeats did not fit into the time; {fewer} ran.",)
    if factor >= 1:
        return cases, fewer, notes
    cut = f"Epochs were cut to {max(factor, 0):.1%} of those of the workload, at least one each, to fit into the time."
    return [prepared.shortened(max(factor, 0.0)) for prepared in cases], fewer, (*notes, cut)


def _probe(prepared: Prepared) -> RunSpec:
    """One epoch of everything with another seed, so that it does not count as a repeat."""
    short = prepared.shortened(0).spec
    parts = tuple(
        part.model_copy(update={"hyperparameters": part.hyperparameters.model_copy(update={"seed": PROBE_SEED})})
        for part in short.submodels
    )
    return short.model_copy(update={"submodels": parts})


def _named(prepared: Prepared, arm: BenchArm) -> str:
    several = arm.mode == "hybrid" and len(prepared.case.hybrids) > 1
    return f"hybrid, {prepared.case.hybrids[arm.hybrid].name}" if several else arm.mode


def _step_progress(on_progress: OnProgress, text: str, done: int, arms: int) -> Callable[[float], object]:
    return lambda share: on_progress(BenchProgress(text, done, arms, share))
