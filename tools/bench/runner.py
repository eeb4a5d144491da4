"""Runs the arms of a workload through the service, one at a time, as a user would."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

from tools.bench import arms
from tools.bench.launcher import BenchLauncher
from tools.bench.prepare import Prepared, prepare
from tools.bench.scenarios import Scenario
from tools.machine import ToolFailed
from unifiednn_core.base.clock import Clock
from unifiednn_core.base.errors import IllegalTransition
from unifiednn_core.base.paths import Home
from unifiednn_core.runtime.supervisor import Supervisor
from unifiednn_core.service.facade import Service
from unifiednn_core.spec.lifecycle import ENDED
from unifiednn_core.spec.run import Mode
from unifiednn_core.store import Store
from unifiednn_core.views.comparison import Comparison
from unifiednn_core.views.runs import RunView

POLL_S = 0.2
STOPPING_S = 30.0


@dataclass(frozen=True, slots=True)
class BenchArm:
    """One way to train a case: a baseline, or one of its hybrids."""

    mode: Mode
    hybrid: int = 0


@dataclass(frozen=True, slots=True)
class BenchRepeats:
    """All repeats so far."""

    repeats: int
    cases: tuple[tuple[Prepared, tuple[Comparison, ...]], ...]
    """Each with a comparison for each of its hybrids."""
    parameters: Mapping[str, Mapping[str, int]]
    """Weights of each sub-model, by case."""
    notes: tuple[str, ...]


OnProgress = Callable[[str, float], object]
"""Takes what trains now, and how much of all is done, 0 to 1."""


def arms_of(prepared: Prepared) -> list[BenchArm]:
    """All arms of a case, the baselines first."""
    hybrids = [BenchArm("hybrid", place) for place in range(len(prepared.case.hybrids))]
    return [*(BenchArm(mode) for mode in prepared.case.baselines), *hybrids]


def rotated(order: Sequence[BenchArm], repeat: int) -> list[BenchArm]:
    """Arms in the order of a repeat: each comes first, last and in between equally often."""
    start = repeat % len(order)
    return [*order[start:], *order[:start]]


def measure(
    scenario: Scenario, data: Path, folder: Path, *, repeats: int, on_progress: OnProgress = lambda _text, _share: None
) -> Iterator[BenchRepeats]:
    """Train everything in `folder`, which gets homes; yields after each repeat. Raises `BadInput` and `ToolFailed`."""
    base = folder / "files"
    base.mkdir(parents=True, exist_ok=True)
    on_progress("writing networks and data", 0.0)
    cases = [prepare(scenario, case, data, base) for case in scenario.cases if arms.runs_here(case.arm)]
    absent = [case.name for case in scenario.cases if not arms.runs_here(case.arm)]
    notes = tuple(f"Not run, because this machine lacks it: {name}." for name in absent)
    count, done = repeats * sum(len(arms_of(prepared)) for prepared in cases), 0
    with ExitStack() as stack:
        stack.enter_context(arms.shown())
        # Each kind of arm has a home of its own: its baselines have the fingerprint of the others.
        kinds = dict.fromkeys(prepared.case.arm for prepared in cases)
        places = {kind: stack.enter_context(_workplace(Home(folder / f"home-{kind}"))) for kind in kinds}
        hybrids: dict[tuple[str, int], str] = {}
        for repeat in range(1, repeats + 1):
            for prepared in cases:
                for arm in rotated(arms_of(prepared), repeat - 1):
                    on_progress(f"{prepared.case.name}, {arm.mode}, repeat {repeat} of {repeats}", done / count)
                    run = _trained(places[prepared.case.arm], prepared, arm)
                    done += 1
                    if arm.mode == "hybrid":
                        hybrids[prepared.case.name, arm.hybrid] = run.run_id
            found, parameters = [], {}
            for prepared in cases:
                service, name = places[prepared.case.arm].service, prepared.case.name
                ids = [hybrids[name, place] for place in range(len(prepared.case.hybrids))]
                found.append((prepared, tuple(map(service.comparisons.comparison, ids))))
                parameters[name] = {part.name: part.parameters for part in service.runs.observe(ids[0]).submodels}
            yield BenchRepeats(repeat, tuple(found), parameters, notes)


@dataclass(frozen=True, slots=True)
class _Workplace:
    """A service with its own home, and what starts its workers."""

    service: Service
    launcher: BenchLauncher


@contextmanager
def _workplace(home: Home) -> Iterator[_Workplace]:
    clock, launcher = Clock(), BenchLauncher(home.create())
    store = Store.open(home, clock)
    service = Service(home, store, Supervisor(store, launcher, clock), clock)
    try:
        service.start_supervisor()
        yield _Workplace(service, launcher)
    finally:
        service.close()


def _trained(place: _Workplace, prepared: Prepared, arm: BenchArm) -> RunView:
    """Train one arm to its end; an interruption stops it."""
    service = place.service
    place.launcher.warm = prepared.case.hybrids[arm.hybrid].start == "warm"
    with nullcontext() if arm.mode == "hybrid" else arms.running(prepared.case.arm):
        run_id = service.comparisons.submit_arm(prepared.trained_as(arm.hybrid), prepared.base, arm.mode)
        try:
            while (run := service.runs.observe(run_id)).state not in ENDED:
                if not service.supervisor_alive:
                    raise ToolFailed("The supervisor thread ended. Read the log, then run the bench again.")
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
