"""Several devices on simulated time: placement and the policy of each hybrid are the very objects of the server.

Placement is `placement.decide` on views that are built as the supervisor builds them; a hybrid is a
`simulator.SimulatedHybrid`. One sub-model steps at a time on a device, and starting a hybrid takes no time.
"""

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from math import ceil, inf, isinf

from unifiednn_core.scheduling.base import Policy
from unifiednn_core.scheduling.line import (
    DeviceView,
    FleetView,
    HybridView,
    Placed,
    Placement,
    Plan,
    Waiting,
)
from unifiednn_core.scheduling.placement import STAY_S, decide
from unifiednn_core.scheduling.simulator import SimulatedHybrid, SimulatedJob
from unifiednn_core.scheduling.sites import predicted_bytes
from unifiednn_core.spec.devices import DeviceState

NEVER_S = 1e9
"""Duration of those whose seconds are unknown."""
MOST_LOOKS = 20_000
"""Moments of a forecast, about a second of work."""
_EPOCHS = 10  # of a job of which only the seconds are known


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A device that is drained, lost or given back."""

    at_s: float
    device: str
    state: DeviceState


@dataclass(slots=True)
class FleetTrace:
    """What happened. Seconds on the clock of the view; by key of each sub-model."""

    placed_s: dict[str, float] = field(default_factory=dict)
    """First time in a hybrid."""
    starts_s: dict[str, float] = field(default_factory=dict)
    """First turn."""
    ends_s: dict[str, float] = field(default_factory=dict)
    placements: list[tuple[float, Placement]] = field(default_factory=list)
    moved: list[str] = field(default_factory=list)
    """Keys of those that left a hybrid, as often as they did."""
    waits: Mapping[str, str] = field(default_factory=dict)
    """What those wait for that never start."""


def run_fleet(
    view: FleetView,
    policy: Policy,
    *,
    jobs: Mapping[str, SimulatedJob] | None = None,
    coming: Iterable[Waiting] = (),
    changes: Iterable[Change] = (),
    watch: Callable[[FleetView, Plan], object] = lambda view, plan: None,
    train: Callable[[str], SimulatedHybrid | None] = lambda run_id: None,
    most_looks: int | None = None,
) -> FleetTrace:
    """Simulate from a view on until everyone has ended whom a device helps and whose seconds are known.

    `jobs` says how long sub-models really train, by key; by default their `left_s` is true. `coming` are submitted
    later. `watch` sees each view with the plan for it. `train` makes the private hybrid of a run, or None for one of
    this `policy`. It ends after `most_looks` moments at which anything changes.
    """
    fleet = _Fleet(view, policy, jobs or {}, coming, changes, watch, train)
    return fleet.run(inf if most_looks is None else most_looks)


@dataclass(slots=True)
class _Member:
    entry: Waiting
    key: str
    job: SimulatedJob
    moved_at_s: float | None
    expected: float | None
    """Seconds that placement expects for one that is really left; None if it knows none."""
    joined: bool = False
    leaving: bool = False


@dataclass(slots=True, eq=False)
class _Hybrid:
    view: HybridView
    train: SimulatedHybrid
    members: dict[str, _Member] = field(default_factory=dict)


class _Fleet:
    def __init__(
        self,
        view: FleetView,
        policy: Policy,
        jobs: Mapping[str, SimulatedJob],
        coming: Iterable[Waiting],
        changes: Iterable[Change],
        watch: Callable[[FleetView, Plan], object],
        train: Callable[[str], SimulatedHybrid | None],
    ):
        self._view, self._policy, self._jobs, self._watch = view, policy, dict(jobs), watch
        self._train = train
        self._trace = FleetTrace()
        self._unknown: set[str] = set()
        """Keys of those whose seconds are unknown."""
        placed = (member.left_s for hybrid in view.hybrids for member in hybrid.members)
        known_s = [left_s for left_s in (*placed, *(entry.left_s for entry in view.waiting)) if left_s]
        self._usual_s = sum(known_s) / len(known_s) if known_s else 60.0
        self._now_s = view.now_s
        self._devices = {device.name: replace(device, resting=False) for device in view.devices}
        self._hybrids: dict[str, _Hybrid] = {}
        self._waiting = {id(entry): entry for entry in view.waiting}
        self._order = count()
        known = {hybrid.id for hybrid in view.hybrids}
        self._ids = (name for place in count() if (name := f"simulated{place}") not in known)
        self._events: list[tuple[float, int, Callable[[], object]]] = []
        self._pools: dict[str, float] = {}
        """Bytes of each pool that hybrids may share out."""
        for device in view.devices:
            free_bytes = inf if device.free_bytes is None else device.free_bytes
            self._pools[_pool(device)] = min(self._pools.get(_pool(device), inf), free_bytes)
        for hybrid in view.hybrids:
            if hybrid.device in self._devices:
                self._begin_with(hybrid)
        for entry in coming:
            self._at(entry.submitted_at_s, lambda entry=entry: self._submit(entry))  # type: ignore[misc]
        for change in changes:
            self._at(change.at_s, lambda change=change: self._change(change))  # type: ignore[misc]
        for entry in view.waiting:
            self._expect(entry)

    def run(self, most_looks: float) -> FleetTrace:
        self._place()
        looks = 0
        while looks < most_looks and (self._events or not self._open_end()):
            looks += 1
            next_s = min((one.train.next_s for one in self._hybrids.values()), default=inf)
            self._now_s = max(self._now_s, min(next_s, self._events[0][0] if self._events else inf))
            changed = False
            while self._events and self._events[0][0] <= self._now_s:
                heapq.heappop(self._events)[2]()
                changed = True
            if changed:
                self._place()
            if self._advance():
                self._place()

        return self._trace

    def _open_end(self) -> bool:
        """Whether only those train whose seconds are unknown, if any."""
        return all(key in self._unknown for one in self._hybrids.values() for key in one.members)

    def _at(self, at_s: float, act: Callable[[], object]) -> None:
        heapq.heappush(self._events, (at_s, next(self._order), act))

    def _submit(self, entry: Waiting) -> None:
        self._waiting[id(entry)] = entry
        self._expect(entry)

    def _expect(self, entry: Waiting) -> None:
        """Look again when an entry need not gather any longer."""
        if self._view.mode == "gathered" and not entry.private:
            self._at(max(self._now_s, entry.submitted_at_s + self._view.gather_s), lambda: None)

    def _change(self, change: Change) -> None:
        self._devices[change.device] = replace(self._devices[change.device], state=change.state)

    def _begin_with(self, view: HybridView) -> None:
        hybrid = self._made(view, view.id)
        device = self._devices[view.device]
        held_bytes = view.used_bytes
        if held_bytes is None:
            held_bytes = predicted_bytes(view, device, self._view.lanes, self._view.company_share) or 0
        self._pools[_pool(device)] += held_bytes
        for place, member in enumerate(view.members):
            entry = Waiting(
                keys=(member.key,), run_id=member.run_id, submitted_at_s=-inf, arrival=place,
                asked=view.device, devices=member.devices, private=view.private, people=member.people,
                need=member.need, threads=view.threads, profile=view.profile, left_s=member.left_s,
            )  # fmt: skip
            self._join(hybrid, self._member(entry, member.key, member.moved_at_s))

    def _job(self, entry: Waiting, key: str) -> SimulatedJob:
        """The job behind a key."""
        known = self._jobs.get(key)
        if known is None:
            left_s = self._usual_s if entry.left_s is None else max(entry.left_s / len(entry.keys), 1e-3)
            steps = max(1, round(left_s / _EPOCHS))
            epochs = _EPOCHS if entry.left_s is not None else ceil(NEVER_S / left_s) * _EPOCHS
            step_s = left_s / (steps * _EPOCHS)
            known = SimulatedJob(name=key, epochs=epochs, steps_per_epoch=steps, seconds_per_step=step_s)
            self._jobs[key] = known
            if entry.left_s is None:
                self._unknown.add(key)
        return known

    def _member(self, entry: Waiting, key: str, moved_at_s: float | None) -> _Member:
        whole_s = sum(_left_s(self._job(entry, one)) for one in entry.keys)
        expected = None if entry.left_s is None else entry.left_s / whole_s if whole_s > 0 else 1.0
        return _Member(entry, key, self._job(entry, key), moved_at_s, expected)

    def _join(self, hybrid: _Hybrid, member: _Member) -> None:
        hybrid.members[member.key] = member
        member.joined = True
        hybrid.train.join(replace(member.job, name=member.key), self._now_s)

    # -- the view

    def _seen(self) -> FleetView:
        hybrids = tuple(self._hybrid_view(hybrid) for hybrid in self._hybrids.values())
        free = dict(self._pools)
        for view in hybrids:
            device = self._devices[view.device]
            held_bytes = predicted_bytes(view, device, self._view.lanes, self._view.company_share)
            free[_pool(device)] -= held_bytes or 0
        devices = tuple(
            replace(device, free_bytes=None if isinf(free[_pool(device)]) else max(0, int(free[_pool(device)])))
            for device in self._devices.values()
        )
        waiting = tuple(self._waiting.values())
        return replace(self._view, now_s=self._now_s, devices=devices, hybrids=hybrids, waiting=waiting)

    def _hybrid_view(self, hybrid: _Hybrid) -> HybridView:
        lefts_s = hybrid.train.lefts_s(self._now_s)
        members = tuple(
            Placed(
                key=member.key, run_id=member.entry.run_id, devices=member.entry.devices, people=member.entry.people,
                need=member.entry.need, left_s=_expected_s(member, lefts_s.get(member.key, _left_s(member.job))),
                moved_at_s=member.moved_at_s, leaving=member.leaving,
            )
            for member in hybrid.members.values()
        )  # fmt: skip
        return replace(hybrid.view, members=members, used_bytes=None)

    # -- what happens

    def _place(self) -> None:
        view = self._seen()
        plan = decide(view)
        self._watch(view, plan)
        self._trace.waits = plan.waits
        by_key = {key: entry for entry in view.waiting for key in entry.keys}
        for placement in plan.placements:
            self._trace.placements.append((self._now_s, placement))
            hybrid = self._hybrid_of(placement, [by_key[key] for key in placement.keys])
            for key in placement.keys:
                entry = by_key[key]
                self._waiting.pop(id(entry), None)
                moved = key in self._trace.placed_s
                self._trace.placed_s.setdefault(key, self._now_s)
                member = self._member(entry, key, self._now_s if moved else None)
                hybrid.members[key] = member
                if moved:  # its checkpoint has to come; later it may move again
                    self._at(self._now_s + STAY_S, lambda: None)
                    self._at(self._now_s + view.move_cost_s, lambda h=hybrid, m=member: self._arrive(h, m))  # type: ignore[misc]
                else:
                    self._join(hybrid, member)
        for move in plan.moves:
            hybrid = self._hybrids[move.hybrid_id]
            member = hybrid.members[move.key]
            member.leaving = True
            if member.joined:
                hybrid.train.leave(move.key, self._now_s)
            else:
                self._at(self._now_s, lambda h=hybrid, m=member: self._leave(h, [m.job]))  # type: ignore[misc]

    def _arrive(self, hybrid: _Hybrid, member: _Member) -> None:
        if hybrid.members.get(member.key) is member and not member.leaving:
            self._join(hybrid, member)

    def _hybrid_of(self, placement: Placement, entries: Sequence[Waiting]) -> _Hybrid:
        if placement.hybrid_id is not None:
            return self._hybrids[placement.hybrid_id]
        accepts = self._view.mode == "pooled" and not placement.private and all(one.need for one in entries)
        view = HybridView(
            id=next(self._ids), device=placement.device, also=placement.also, private=placement.private,
            accepts=accepts, threads=placement.threads, profile=placement.profile, members=(),
            peak_bytes=entries[0].peak_bytes,
        )  # fmt: skip
        return self._made(view, entries[0].run_id)

    def _made(self, view: HybridView, run_id: str) -> _Hybrid:
        train = self._train(run_id) if view.private else None
        hybrid = self._hybrids[view.id] = _Hybrid(view, train or SimulatedHybrid(self._policy))
        return hybrid

    def _advance(self) -> bool:
        """Let each hybrid do what is due now; returns whether anyone has ended or left."""
        changed = False
        for hybrid in list(self._hybrids.values()):
            while hybrid.train.next_s <= self._now_s:
                ended, left = hybrid.train.advance()
                for key in ended:
                    del hybrid.members[key]
                    self._trace.ends_s[key] = self._now_s
                if left:
                    self._leave(hybrid, left)
                changed = changed or bool(ended or left)
                for key, start_s in hybrid.train.at_work:
                    self._trace.starts_s.setdefault(key, start_s)
            hybrid.train.turns.clear()
            if not hybrid.members:
                self._hybrids.pop(hybrid.view.id, None)
        return changed

    def _leave(self, hybrid: _Hybrid, jobs: Sequence[SimulatedJob]) -> None:
        """Back to the line, with what is left; the members of a private hybrid as one."""
        left = [hybrid.members.pop(job.name) for job in jobs]
        self._jobs.update({job.name: job for job in jobs})
        self._trace.moved += [member.key for member in left]
        for members in [left] if hybrid.view.private else [[member] for member in left]:
            lefts_s = [_expected_s(member, _left_s(self._jobs[member.key])) for member in members]
            known_s = [left_s for left_s in lefts_s if left_s is not None]
            entry = replace(
                members[0].entry,
                keys=tuple(member.key for member in members),
                left_s=sum(known_s) if len(known_s) == len(members) else None,
            )
            self._waiting[id(entry)] = entry
            self._expect(entry)
        if not hybrid.members:
            self._hybrids.pop(hybrid.view.id, None)


def _left_s(job: SimulatedJob) -> float:
    """Seconds of service left."""
    return (job.epochs * job.steps_per_epoch - job.steps_done) * job.seconds_per_step


def _expected_s(member: _Member, left_s: float) -> float | None:
    """What placement expects of what is really left."""
    return None if member.expected is None else left_s * member.expected


def _pool(device: DeviceView) -> str:
    return device.pool or device.name
