"""The line for all devices, and when each entry starts and ends if no other comes.

The forecast simulates each hybrid, a private one under its own policy and lanes, so it is made once for all who look,
and kept for a while. It is made three times: as all likely go, and with each at the fast and at the slow end of
the range of its speed.
"""

import math
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from unifiednn_core.base.clock import Clock
from unifiednn_core.base.errors import BadInput
from unifiednn_core.machine.devices import looking_once
from unifiednn_core.runtime.placing import Fleet
from unifiednn_core.scheduling.line import FleetView
from unifiednn_core.scheduling.placement import decide
from unifiednn_core.scheduling.queue_forecast import forecast_queue
from unifiednn_core.scheduling.registry import policy_named
from unifiednn_core.scheduling.rehearsal import Pace, coarse, paced
from unifiednn_core.scheduling.simulator import SimulatedJob, SimulatedTurn, simulate
from unifiednn_core.service import rehearsals
from unifiednn_core.store.hybrids import Resident
from unifiednn_core.store.speeds import TimedTurn
from unifiednn_core.views.estimates import Estimate, earliest, latest

EPOCHS, FEWEST_EPOCHS, STEPS_PER_EPOCH = 600, 4, 4
"""Epochs of all trainings of a forecast, the fewest of a run, and steps of one, where there are more."""
SHORTEST_S, NEVER_S = 0.01, 1e9
"""Seconds of a step of one that rests, and of one whose speed is unknown."""
KEPT_S = 4.0
SHARE_OF_TIME = 0.05
"""Part of the time that forecasts may take."""
Turns = Callable[[Iterable[str]], Mapping[str, Sequence[TimedTurn]]]
"""The newest turns of runs."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """The fleet at one moment, what each sub-model waits for, and when it starts and ends."""

    fleet: Fleet
    waits: Mapping[str, str]
    """By key of each sub-model: text after "waits for"."""
    starts_in_s: Mapping[str, Estimate]
    """By key, of those that wait; unknown ones are left out."""
    ends_in_s: Mapping[str, Estimate]
    """By key, also of those that train."""
    rests: frozenset[str] = field(default_factory=frozenset)
    """Keys of those that are paused or are being stopped: nothing is foreseen of them."""

    def of(self, keys: Iterable[str]) -> tuple[Estimate | None, Estimate | None]:
        """When the first of these sub-models starts and the last one ends; None if one of them is unknown."""
        asked = [key for key in keys if key not in self.rests]
        starts = [self.starts_in_s[key] for key in asked if key in self.starts_in_s]
        ends = [self.ends_in_s[key] for key in asked if key in self.ends_in_s]
        start = earliest(starts) if len(starts) == len(asked) else None
        return start, latest(ends) if len(ends) == len(asked) else None


class Line:
    """Looks at the fleet. Safe to share between threads."""

    def __init__(self, look: Callable[[], Fleet], clock: Clock, turns: Turns = lambda run_ids: {}):
        self._look, self._clock, self._turns = look, clock, turns
        self._lock = threading.Lock()
        self._known: Outlook | None = None
        self._until_s = -math.inf

    def now(self) -> Outlook:
        """The line and its forecast, at most a moment old; the last one while somebody else makes a new one."""
        known = self._known
        if not self._lock.acquire(blocking=known is None) and known is not None:
            return known
        try:
            begun_s = self._clock.monotonic_s()
            if self._known is None or begun_s >= self._until_s:
                with looking_once():
                    self._known = outlook_of(self._look(), self._turns)
                took_s = self._clock.monotonic_s() - begun_s
                self._until_s = begun_s + max(KEPT_S, took_s / SHARE_OF_TIME)
            return self._known
        finally:
            self._lock.release()

    def forget(self) -> None:
        """Look again next time, because something has just changed."""
        with self._lock:
            self._known = None


def outlook_of(fleet: Fleet, turns: Turns = lambda run_ids: {}) -> Outlook:
    """What is foreseen of a fleet."""
    view = _without_rests(fleet.view)
    waits = dict(decide(fleet.view).waits)
    rests = frozenset(key for key, one in fleet.residents.items() if not rehearsals.trains(one.row))
    asked = fleet.pooling.hybrid.policy
    try:
        policy = policy_named(asked.name, asked.parameters)
    except BadInput:  # the policy of a plugin that is gone
        return Outlook(fleet, waits, {}, {}, rests)
    runs = defaultdict[str, list[Resident]](list)
    for resident in fleet.residents.values():
        runs[resident.run.id].append(resident)
    paces = _paces(fleet, runs, turns)
    placements = decide(view).placements

    @cache
    def rules(run_id: str) -> rehearsals.Rules:
        return rehearsals.rules_of(runs[run_id][0].run, [one.row for one in runs[run_id]], f"{run_id}/")

    def train(run_id: str | None, jobs: Sequence[SimulatedJob]) -> Iterable[SimulatedTurn]:
        if run_id not in runs:
            return simulate(jobs, policy)
        return simulate(jobs, rules(run_id).policy, lanes=rules(run_id).lanes, may_join=rules(run_id).may_join)

    starts, ends = list[Mapping[str, float]](), list[Mapping[str, float]]()
    for scale in (0.0, -1.0, 1.0):
        starts_s, ends_s = forecast_queue(view, placements, _jobs(runs, paces, view.now_s, scale), train)
        ends.append({key: end_s for key, end_s in ends_s.items() if end_s < NEVER_S / 2 and key not in rests})
        starts.append({key: starts_s[key] for key in ends[-1]})
    waiting = {key for entry in view.waiting for key in entry.keys}
    begins = {key: one for key, one in _ranges(starts).items() if key in waiting}
    return Outlook(fleet, waits, begins, _ranges(ends), rests)


def _ranges(found: Sequence[Mapping[str, float]]) -> dict[str, Estimate]:
    """Estimates from the likely, the fast and the slow forecast, where all know a key."""
    likely, fast, slow = found
    known = ((key, likely[key], fast[key], slow[key]) for key in likely if key in fast and key in slow)
    return {key: Estimate(at_s, min(at_s, low_s), max(at_s, high_s)) for key, at_s, low_s, high_s in known}


def _paces(fleet: Fleet, runs: Mapping[str, Sequence[Resident]], turns: Turns) -> dict[str, Pace]:
    """Speed of each sub-model that trains, by key; unknown ones are left out."""
    before = {key: Pace(step_s) for key, step_s in fleet.speeds.items()}
    known = turns([run_id for run_id, members in runs.items() if any(one.row.service_s for one in members)])
    return {
        f"{run_id}/{name}": pace
        for run_id, members in runs.items()
        for name, pace in rehearsals.paces_of(
            members[0].run, [one.row for one in members], known.get(run_id, ()), before
        ).items()
    }


def _jobs(
    runs: Mapping[str, Sequence[Resident]], paces: Mapping[str, Pace], now_s: float, scale: float
) -> dict[str, SimulatedJob]:
    """Each sub-model with what is left of it, at a place in the range of its speed, in coarse steps.

    One whose seconds are unknown takes one step that never ends, so nothing is predicted for entries that wait for it;
    one that rests takes no time.
    """
    found = dict[str, SimulatedJob]()
    epochs = max(FEWEST_EPOCHS, EPOCHS // max(1, len(runs)))
    for run_id, members in runs.items():
        prefix, jobs = f"{run_id}/", list[SimulatedJob]()
        for run, row in sorted(members, key=lambda one: one.row.arrival):
            key = f"{prefix}{row.name}"
            if not rehearsals.trains(row):
                found[key] = SimulatedJob(name=key, seconds_per_step=SHORTEST_S)
            elif key not in paces:
                found[key] = SimulatedJob(name=key, seconds_per_step=NEVER_S)
            else:
                jobs.append(paced(rehearsals.job_of_row(run, row, paces[key], now_s, prefix), paces[key], scale))
        made = coarse(jobs, most_epochs=epochs, most_steps=STEPS_PER_EPOCH * epochs)
        found |= {job.name: replace(job, seconds_per_step=max(job.seconds_per_step, SHORTEST_S / 10)) for job in made}
    return found


def _without_rests(view: FleetView) -> FleetView:
    """The view a moment later: what starts now has started."""
    devices = tuple(replace(device, resting=False) for device in view.devices)
    known = {device.name for device in devices}
    return replace(view, devices=devices, hybrids=tuple(one for one in view.hybrids if one.device in known))
