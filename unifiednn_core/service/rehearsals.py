"""Rows of runs as jobs of a simulation: how fast each sub-model trains, and under which rules. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from unifiednn_core.base.errors import BadInput
from unifiednn_core.machine.budget import device_type
from unifiednn_core.machine.cores import cores, lanes_of
from unifiednn_core.machine.devices import best_match, threads_of
from unifiednn_core.preflight.deadlines import due_at_s
from unifiednn_core.preflight.forecast import memory_room
from unifiednn_core.scheduling.base import Policy
from unifiednn_core.scheduling.company import MemoryRoom
from unifiednn_core.scheduling.fcfs import FirstComeFirstServed
from unifiednn_core.scheduling.registry import policy_named
from unifiednn_core.scheduling.rehearsal import (
    LEAST_S,
    SETTLED_STEPS,
    SLOWDOWN,
    Pace,
    Stretch,
    joining,
    mostly_beside,
    pace_of,
)
from unifiednn_core.scheduling.simulator import MayJoin, SimulatedJob
from unifiednn_core.spec.devices import own_name
from unifiednn_core.spec.lifecycle import ENDED, State
from unifiednn_core.spec.run import PolicySpec
from unifiednn_core.store.schema import HYBRID, RunRow, SubModelRow
from unifiednn_core.store.speeds import TimedTurn

FORECAST = "forecast"
"""Entry of a run's environment with the forecast that it keeps."""
RESTING = ENDED | {State.PAUSED, State.PAUSING, State.STOPPING}
"""States in which a sub-model does not train to its end now."""


@dataclass(frozen=True, slots=True)
class Rules:
    """How a private hybrid trains."""

    policy: Policy
    lanes: int
    may_join: MayJoin


def trains(row: SubModelRow) -> bool:
    """Whether a sub-model trains to its end, or waits for that."""
    return State(row.state) not in RESTING


def rules_of(run: RunRow, rows: Sequence[SubModelRow], prefix: str = "") -> Rules:
    """How a private run trains; its jobs have the names of its sub-models after a `prefix`."""
    if run.mode != HYBRID:  # its scripts run all at once, or one after the other
        lanes = len(rows) if run.mode == "concurrent" else 1
        return Rules(FirstComeFirstServed(), max(1, lanes), lambda candidate, at_work, unended: True)
    device, lanes = run.device or run.spec.get("device", "cpu"), known_lanes(run)
    may_join = joining(
        room_of(run), prefix, on_host=device_type(device) == "cpu", by_cpu=judged_by_cpu(lanes, run.threads, device)
    )
    return Rules(policy_of(run), lanes, may_join)


def policy_of(run: RunRow) -> Policy:
    """The policy of a run; first come, first served if it is gone."""
    asked = PolicySpec.model_validate(run.spec.get("policy", {}))
    try:
        return policy_named(asked.name, asked.parameters)
    except BadInput:
        return FirstComeFirstServed()


def known_lanes(run: RunRow) -> int:
    """Lanes of a run: those that its worker has, or will have on the device that it asks for."""
    found = None if run.hybrid is None else run.hybrid.environment.get("lanes")
    return int(found) if found else lanes_on(run.spec.get("lanes", "auto"), run.threads, run.device)


def lanes_on(asked: object, threads: int | None, device: str) -> int:
    """Lanes on the device that best matches what is asked for."""
    place = best_match(device)
    kind, own_cores = ("cpu", 0) if place is None else (place.type, len(place.cpus))
    return lanes_of(asked if isinstance(asked, int) else "auto", threads or threads_of(device), kind, own_cores)


def judged_by_cpu(lanes: int, threads: int | None, device: str) -> bool:
    """Whether the engine judges company by CPU seconds: on a CPU with a core for each thread of each lane."""
    place = best_match(device)
    own_cores = cores() if place is None else len(place.cpus) or cores()
    return device_type(device) == "cpu" and lanes * (threads or threads_of(device)) <= own_cores


def room_of(run: RunRow) -> MemoryRoom:
    """What the memory prediction of a run allows to company; nothing is known without one, or of another version's."""
    try:
        return memory_room(run.prediction)
    except (KeyError, TypeError, ValueError):
        return MemoryRoom()


def stretches_of(run: RunRow, rows: Sequence[SubModelRow], turns: Sequence[TimedTurn]) -> list[Stretch]:
    """Turns of a run as they were measured, those included that have not ended."""
    found = [Stretch(one.submodel, one.start_s, one.end_s, one.steps) for one in turns]
    for row in rows:
        own = [turn for turn in turns if turn.submodel == row.name]
        # If older turns or attempts are left out, nobody knows what of the service the running turn has had.
        if row.lane is not None and row.turn_since_s is not None and _counted(own) == sum(turn.steps for turn in own):
            running_s = row.service_s - sum(turn.end_s - turn.start_s for turn in own)
            steps = row.steps_done - _counted(own)
            if running_s > 0 and steps > 0:
                found.append(Stretch(row.name, row.turn_since_s, row.turn_since_s + running_s, steps))
    return found


def row_pace(
    run: RunRow, row: SubModelRow, turns: Sequence[TimedTurn], stretches: Sequence[Stretch], before: Pace | None
) -> Pace | None:
    """Speed of a sub-model by its own turns; as it was known `before`, while these are few steps that mostly warm up.

    Without an earlier speed, of few steps those count that the engine timed after the first one.
    """
    if row.steps_done < SETTLED_STEPS and row.service_s < LEAST_S:
        if before is not None:
            return before
        if row.step_s:
            return Pace(row.step_s / (SLOWDOWN if mostly_beside(row.name, stretches) else 1.0))
    alone_s = _cpu_s(run, row, turns) or (None if before is None else before.step_s)
    own = pace_of(row.name, stretches, service_s=row.service_s, steps=row.steps_done, alone_s=alone_s)
    return own or before


def _cpu_s(run: RunRow, row: SubModelRow, turns: Sequence[TimedTurn]) -> float | None:
    """CPU seconds per step of the ended turns, where that is the time of a step alone, once the first hardly count."""
    alone = (
        run.threads == 1
        and row.device_kind
        and (run.hybrid is None or own_name(run.hybrid.device or "").startswith("cpu"))
    )
    steps = _counted([turn for turn in turns if turn.submodel == row.name])
    return row.cpu_s / steps if alone and row.cpu_s and steps >= SETTLED_STEPS else None


def _counted(own: Sequence[TimedTurn]) -> int:
    """Steps of a sub-model at the end of its last turn."""
    return own[-1].from_step + own[-1].steps if own else 0


def job_of_row(run: RunRow, row: SubModelRow, pace: Pace, now_s: float, prefix: str = "") -> SimulatedJob:
    """What is left of a sub-model, as a job that is there from now on."""
    return SimulatedJob(
        name=f"{prefix}{row.name}",
        priority=row.priority,
        parameters=row.parameters,
        epochs=row.epochs,
        steps_per_epoch=max(1, row.steps_total // row.epochs),
        seconds_per_step=pace.step_s,
        measured=row.steps_done > 0,
        steps_done=min(row.steps_done, max(0, row.steps_total - 1)),
        service_s=row.service_s,
        owner=row.owner,
        deadline_s=None if row.deadline_s is None else due_at_s(run, row) - now_s,
        slowdown=pace.slowdown,
    )


def paces_of(
    run: RunRow, rows: Sequence[SubModelRow], turns: Sequence[TimedTurn], before: Mapping[str, Pace]
) -> dict[str, Pace]:
    """Speeds of the sub-models of a run that train, by name; unknown ones are left out.

    `before` is by memory key; what the run's own forecast assumed goes first.
    """
    assumed = (run.environment.get(FORECAST) or {}).get("step_s", {})
    stretches, found = stretches_of(run, rows, turns), dict[str, Pace]()
    for row in filter(trains, rows):
        known = Pace(assumed[row.name]) if assumed.get(row.name) else before.get(row.memory_key)
        pace = row_pace(run, row, turns, stretches, known)
        if pace is not None:
            found[row.name] = pace
    return found
