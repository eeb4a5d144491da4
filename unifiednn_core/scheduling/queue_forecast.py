"""When each sub-model of a fleet starts and ends, if nobody else comes and nobody moves.

Each hybrid is simulated alone. An entry of the queue starts where a device is free first: a private one when the hybrid
there has ended, a shared one when a member of a hybrid ends and leaves its memory. Starting a worker takes no time.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush

from unifiednn_core.scheduling.line import FleetView, Placement, Waiting, in_order
from unifiednn_core.scheduling.simulator import SimulatedJob, SimulatedTurn

Train = Callable[[str | None, Sequence[SimulatedJob]], Iterable[SimulatedTurn]]
"""Simulates jobs as one hybrid: of a private run, or a shared one for None."""


@dataclass(slots=True, eq=False)
class _Hybrid:
    run_id: str | None
    """The run of a private hybrid."""
    accepts: bool = False
    jobs: list[SimulatedJob] = field(default_factory=list)
    ends_s: list[float] = field(default_factory=list)
    """Heap of the moments at which members are expected to end."""

    @property
    def free_s(self) -> float:
        """When its last member ends."""
        return max(self.ends_s, default=0.0)

    def add(self, jobs: Iterable[SimulatedJob], at_s: float) -> None:
        """Let jobs come at a moment; expect them to end after everybody else."""
        for job in jobs:
            self.jobs.append(replace(job, arrival_s=at_s))
            left_s = (job.epochs * job.steps_per_epoch - job.steps_done) * job.seconds_per_step
            heappush(self.ends_s, max(at_s, self.free_s) + left_s)


def forecast_queue(
    view: FleetView, placements: Sequence[Placement], jobs: Mapping[str, SimulatedJob], train: Train
) -> tuple[dict[str, float], dict[str, float]]:
    """Seconds from now to the first turn and to the end of each sub-model, by key.

    `placements` start now. `jobs` says what is left of each sub-model, by key; entries without one are left out.
    """
    devices: dict[str, list[_Hybrid]] = {one.name: [] for one in view.devices if one.state == "ready"}
    by_id = dict[str, _Hybrid]()
    for one in view.hybrids:
        run_id = one.members[0].run_id if one.private and one.members else None
        by_id[one.id] = hybrid = _Hybrid(run_id, one.accepts and not one.private)
        hybrid.add((jobs[member.key] for member in one.members if member.key in jobs), 0.0)
        for name in (one.device, *one.also):
            devices.setdefault(name, []).append(hybrid)
    entries = {key: entry for entry in view.waiting for key in entry.keys}
    for placed in placements:
        found = None if placed.hybrid_id is None else by_id.get(placed.hybrid_id)
        if found is None:
            found = _Hybrid(entries[placed.keys[0]].run_id if placed.private else None, view.mode == "pooled")
            for name in (placed.device, *placed.also):
                devices.setdefault(name, []).append(found)
        found.add((jobs[key] for key in placed.keys if key in jobs), 0.0)
    hybrids = {id(one): one for there in devices.values() for one in there}
    for hybrid in hybrids.values():
        hybrid.ends_s = list(_ends_s(train(hybrid.run_id, hybrid.jobs)).values())
        heapify(hybrid.ends_s)
    begun = {key for placed in placements for key in placed.keys}
    for entry in in_order(view.waiting):
        if begun.isdisjoint(entry.keys) and all(key in jobs for key in entry.keys):
            _queue(entry, [jobs[key] for key in entry.keys], devices, view)
    hybrids = {id(one): one for there in devices.values() for one in there}
    starts_s, ends_s = dict[str, float](), dict[str, float]()
    for hybrid in hybrids.values():
        turns = list(train(hybrid.run_id, hybrid.jobs))
        ends_s |= _ends_s(turns)
        for turn in turns:
            starts_s[turn.submodel] = min(turn.start_s, starts_s.get(turn.submodel, turn.start_s))
    return starts_s, ends_s


def _queue(entry: Waiting, jobs: Sequence[SimulatedJob], devices: Mapping[str, list[_Hybrid]], view: FleetView) -> None:
    """Give an entry the place that is free first, if any device fits it."""
    there = sorted(
        (devices[name] for name in sorted(entry.devices) if name in devices),
        key=lambda hybrids: hybrids[-1].free_s if hybrids else 0.0,
    )
    if len(there) < entry.claims:
        return
    accepting = [hybrids[-1] for hybrids in there if hybrids and hybrids[-1].accepts and hybrids[-1].ends_s]
    if accepting and not entry.private and view.mode == "pooled":
        hybrid = min(accepting, key=lambda one: one.ends_s[0])
        hybrid.add(jobs, heappop(hybrid.ends_s))
        return
    taken = there[: entry.claims]
    at_s = max((hybrids[-1].free_s for hybrids in taken if hybrids), default=0.0)
    if view.mode == "gathered" and not entry.private:
        at_s = max(at_s, entry.submitted_at_s + view.gather_s - view.now_s)
    hybrid = _Hybrid(entry.run_id if entry.private else None, view.mode == "pooled" and not entry.private)
    hybrid.add(jobs, at_s)
    for hybrids in taken:
        hybrids.append(hybrid)


def _ends_s(turns: Iterable[SimulatedTurn]) -> dict[str, float]:
    found = dict[str, float]()
    for turn in turns:
        found[turn.submodel] = max(turn.end_s, found.get(turn.submodel, 0.0))
    return found
