"""The line for all devices, and when each entry starts and ends if no other comes.

The forecast simulates all devices, so it is made once for all who look, and kept for a while.
"""

import math
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from unifiednn_core.base.clock import Clock
from unifiednn_core.base.errors import BadInput
from unifiednn_core.runtime.placing import Fleet
from unifiednn_core.scheduling.fleet import MOST_LOOKS, NEVER_S, run_fleet
from unifiednn_core.scheduling.line import FleetView
from unifiednn_core.scheduling.placement import decide
from unifiednn_core.scheduling.registry import policy_named
from unifiednn_core.scheduling.simulator import SimulatedJob
from unifiednn_core.views.estimates import Estimate, earliest, latest

STEPS = 16
"""Steps of a training in the forecast."""
SHORTEST_S = 0.01
KEPT_S = 2.0
SPREAD = 0.15
"""How far an estimate may be off, as a share of it."""
SHARE_OF_TIME = 0.05
"""Part of the time that forecasts may take."""


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

    def of(self, keys: Iterable[str]) -> tuple[Estimate | None, Estimate | None]:
        """When the first of these sub-models starts and the last one ends; None if one of them is unknown."""
        asked = list(keys)
        starts = [self.starts_in_s[key] for key in asked if key in self.starts_in_s]
        ends = [self.ends_in_s[key] for key in asked if key in self.ends_in_s]
        start = earliest(starts) if len(starts) == len(asked) else None
        return start, latest(ends) if len(ends) == len(asked) else None


class Line:
    """Looks at the fleet. Safe to share between threads."""

    def __init__(self, look: Callable[[], Fleet], clock: Clock):
        self._look, self._clock = look, clock
        self._lock = threading.Lock()
        self._known: Outlook | None = None
        self._until_s = -math.inf

    def now(self) -> Outlook:
        """The line and its forecast, at most a moment old."""
        with self._lock:
            begun_s = self._clock.monotonic_s()
            if self._known is None or begun_s >= self._until_s:
                self._known = outlook_of(self._look())
                took_s = self._clock.monotonic_s() - begun_s
                self._until_s = begun_s + max(KEPT_S, took_s / SHARE_OF_TIME)
            return self._known

    def forget(self) -> None:
        """Look again next time, because something has just changed."""
        with self._lock:
            self._known = None


def outlook_of(fleet: Fleet) -> Outlook:
    """What is foreseen of a fleet. Pure."""
    view = _without_rests(fleet.view)
    waits = dict(decide(fleet.view).waits)
    asked = fleet.pooling.hybrid.policy
    try:
        trace = run_fleet(view, policy_named(asked.name, asked.parameters), jobs=_jobs(view), most_looks=MOST_LOOKS)
    except BadInput:  # the policy of a plugin that is gone
        return Outlook(fleet, waits, {}, {})
    waiting = {key for entry in view.waiting for key in entry.keys}
    known = {key: end_s - view.now_s for key, end_s in trace.ends_s.items() if end_s - view.now_s < NEVER_S / 2}
    starts = {key: max(0.0, trace.starts_s[key] - view.now_s) for key in known.keys() & waiting}
    begins, ends = ({key: Estimate.around(at_s, SPREAD) for key, at_s in one.items()} for one in (starts, known))
    return Outlook(fleet, waits, begins, ends)


def _jobs(view: FleetView) -> dict[str, SimulatedJob]:
    """Each sub-model as a few long steps: finer ones change little, and take a thousand times as long.

    One whose seconds are unknown takes one step that never ends, so nothing is predicted for entries that wait for it.
    """
    lefts_s = {member.key: member.left_s for hybrid in view.hybrids for member in hybrid.members}
    for entry in view.waiting:
        each_s = None if entry.left_s is None else entry.left_s / max(1, len(entry.keys))
        lefts_s |= dict.fromkeys(entry.keys, each_s)
    return {
        key: SimulatedJob(name=key, epochs=1, steps_per_epoch=1, seconds_per_step=NEVER_S)
        if left_s is None
        else SimulatedJob(name=key, epochs=STEPS, steps_per_epoch=1, seconds_per_step=max(left_s, SHORTEST_S) / STEPS)
        for key, left_s in lefts_s.items()
    }


def _without_rests(view: FleetView) -> FleetView:
    """The view a moment later: what starts now has started."""
    devices = tuple(replace(device, resting=False) for device in view.devices)
    known = {device.name for device in devices}
    return replace(view, devices=devices, hybrids=tuple(one for one in view.hybrids if one.device in known))
