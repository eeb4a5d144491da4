"""Several devices on simulated time: placement and the policy of each hybrid are the very objects of the server.

Placement is `placement.decide` on views that are built as the supervisor builds them; a hybrid is a
`simulator.SimulatedHybrid`. Starting a hybrid takes no time.
"""

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from math import inf, isinf

from unifiednn_core.scheduling.base import Policy
from unifiednn_core.scheduling.fleet_events import Change, FleetTrace
from unifiednn_core.scheduling.fleet_jobs import FleetJobs, FleetMember
from unifiednn_core.scheduling.line import (
    DeviceView,
    FleetView,
    HybridView,
    Placement,
    Plan,
    Waiting,
)
from unifiednn_core.scheduling.placement import STAY_S, decide
from unifiednn_core.scheduling.simulator import SimulatedHybrid, SimulatedJob
from unifiednn_core.scheduling.sites import predicted_bytes

MOST_LOOKS = 20_000
"""Moments of a forecast, about a second of work."""


def unwatched(view: FleetView, plan: Plan) -> None:
    """Watch nothing."""


def run_fleet(
    view: FleetView,
    policy: Policy,
    *,
    jobs: Mapping[str, SimulatedJob] | None = None,
    coming: Iterable[Waiting] = (),
    changes: Iterable[Change] = (),
    watch: Callable[[FleetView, Plan], object] = unwatched,
    train: Callable[[str], SimulatedHybrid | None] = lambda run_id: None,
    most_looks: int | None = None,
    most_plans: int | None = None,
) -> FleetTrace:
    """Simulate from `view` until every sub-model that can be placed and has a known duration has ended.

    `jobs` says how long sub-models really train, by key; by default their `left_s` is true. `coming` are submitted
    later. `watch` sees each view with the plan for it. `train` makes the private hybrid of a run, or None for one of
    this `policy`, which then steps one at a time. It ends after `most_looks` moments at which anything changes, or
    `most_plans`.
    """
    fleet = _Fleet(view, lambda: SimulatedHybrid(policy), jobs or {}, coming, changes, watch, train)
    return fleet.run(inf if most_looks is None else most_looks, inf if most_plans is None else most_plans)


@dataclass(slots=True, eq=False)
class _Hybrid:
    view: HybridView
    train: SimulatedHybrid
    born: int
    members: dict[str, FleetMember] = field(default_factory=dict)


class _Fleet:
    def __init__(
        self,
        view: FleetView,
        made: Callable[[], SimulatedHybrid],
        jobs: Mapping[str, SimulatedJob],
        coming: Iterable[Waiting],
        changes: Iterable[Change],
        watch: Callable[[FleetView, Plan], object],
        train: Callable[[str], SimulatedHybrid | None],
    ):
        self._view, self._shared, self._jobs, self._watch = view, made, FleetJobs(view, jobs), watch
        self._train = train
        self._known = 0
        """Members of hybrids whose seconds are known."""
        self._due: list[tuple[float, int, _Hybrid]] = []
        self._trace = FleetTrace()
        self._now_s = view.now_s
        self._devices = {device.name: replace(device, resting=False) for device in view.devices}
        self._hybrids: dict[str, _Hybrid] = {}
        self._line: dict[str, Waiting] = {}
        """What waits, by key of each sub-model."""
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
            self._submit(entry)

    def run(self, most_looks: float, most_plans: float) -> FleetTrace:
        self._place()
        looks = 0
        while looks < most_looks and self._trace.plans < most_plans and (self._events or not self._open_end()):
            looks += 1
            next_s = min(self._next_due_s(), self._events[0][0] if self._events else inf)
            self._now_s = max(self._now_s, next_s)
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
        return not self._known

    def _next_due_s(self) -> float:
        """When the first hybrid has anything to do."""
        while self._due and not self._is_due(self._due[0]):
            heapq.heappop(self._due)
        return self._due[0][0] if self._due else inf

    def _is_due(self, one: tuple[float, int, _Hybrid]) -> bool:
        return one[2].train.next_s == one[0] and one[2].view.id in self._hybrids

    def _touch(self, hybrid: _Hybrid) -> None:
        """Note that a hybrid has changed."""
        if hybrid.train.next_s < inf:
            heapq.heappush(self._due, (hybrid.train.next_s, hybrid.born, hybrid))

    def _at(self, at_s: float, act: Callable[[], object]) -> None:
        heapq.heappush(self._events, (at_s, next(self._order), act))

    def _submit(self, entry: Waiting) -> None:
        self._line.update(dict.fromkeys(entry.keys, entry))
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
                keys=(member.key,),
                run_id=member.run_id,
                submitted_at_s=-inf,
                arrival=place,
                asked=view.device,
                devices=member.devices,
                private=view.private,
                people=member.people,
                need=member.need,
                threads=view.threads,
                profile=view.profile,
                left_s=member.left_s,
            )
            found = self._jobs.member(entry, member.key, member.moved_at_s)
            self._add(hybrid, found)
            self._join(hybrid, found)

    def _add(self, hybrid: _Hybrid, member: FleetMember) -> None:
        hybrid.members[member.key] = member
        self._known += self._jobs.knows(member.key)
        self._touch(hybrid)

    def _remove(self, hybrid: _Hybrid, key: str) -> FleetMember:
        self._known -= self._jobs.knows(key)
        return hybrid.members.pop(key)

    def _join(self, hybrid: _Hybrid, member: FleetMember) -> None:
        member.joined = True
        hybrid.train.join(replace(member.job, name=member.key), self._now_s)
        self._touch(hybrid)

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
        waiting = tuple({entry.keys[0]: entry for entry in self._line.values()}.values())
        return replace(self._view, now_s=self._now_s, devices=devices, hybrids=hybrids, waiting=waiting)

    def _hybrid_view(self, hybrid: _Hybrid) -> HybridView:
        lefts_s = hybrid.train.lefts_s(self._now_s)
        members = tuple(member.seen(lefts_s.get(member.key)) for member in hybrid.members.values())
        return replace(hybrid.view, members=members, used_bytes=None)

    # -- what happens

    def _place(self) -> None:
        view = self._seen()
        plan = decide(view, says_why=self._watch is not unwatched)
        self._watch(view, plan)
        self._trace.plans += 1
        self._trace.waits = plan.waits
        for placement in plan.placements:
            self._trace.placements.append((self._now_s, placement))
            entries = [self._line.pop(key) for key in placement.keys]
            hybrid = self._hybrid_of(placement, entries)
            for key, entry in zip(placement.keys, entries, strict=True):
                moved = key in self._trace.placed_s
                self._trace.placed_s.setdefault(key, self._now_s)
                member = self._jobs.member(entry, key, self._now_s if moved else None)
                self._add(hybrid, member)
                if moved:  # its checkpoint has to come; later it may move again
                    self._at(self._now_s + STAY_S, lambda: None)
                    self._at(self._now_s + self._view.move_cost_s, lambda h=hybrid, m=member: self._arrive(h, m))  # type: ignore[misc]
                else:
                    self._join(hybrid, member)
        for move in plan.moves:
            hybrid = self._hybrids[move.hybrid_id]
            member = hybrid.members[move.key]
            member.leaving = True
            if member.joined:
                hybrid.train.leave(move.key, self._now_s)
            else:
                self._at(self._now_s, lambda h=hybrid, m=member: self._turn_back(h, m))  # type: ignore[misc]
            self._touch(hybrid)

    def _turn_back(self, hybrid: _Hybrid, member: FleetMember) -> None:
        """Let one leave that had not arrived."""
        if hybrid.members.get(member.key) is member:
            self._leave(hybrid, [member.job])
            self._trace.moved.append(member.key)

    def _arrive(self, hybrid: _Hybrid, member: FleetMember) -> None:
        if hybrid.members.get(member.key) is member and not member.leaving:
            self._join(hybrid, member)

    def _hybrid_of(self, placement: Placement, entries: Sequence[Waiting]) -> _Hybrid:
        if placement.hybrid_id is not None:
            return self._hybrids[placement.hybrid_id]
        accepts = self._view.mode == "pooled" and not placement.private and all(one.need for one in entries)
        view = HybridView(
            id=next(self._ids),
            device=placement.device,
            also=placement.also,
            private=placement.private,
            accepts=accepts,
            threads=placement.threads,
            profile=placement.profile,
            members=(),
            peak_bytes=entries[0].peak_bytes,
        )
        return self._made(view, entries[0].run_id)

    def _made(self, view: HybridView, run_id: str) -> _Hybrid:
        train = self._train(run_id) if view.private else None
        hybrid = _Hybrid(view, train or self._shared(), next(self._order))
        self._hybrids[view.id] = hybrid
        return hybrid

    def _advance(self) -> bool:
        """Let each hybrid do what is due now; returns whether anyone has ended or left."""
        changed, due = False, dict[int, _Hybrid]()
        while self._next_due_s() <= self._now_s:
            _, born, hybrid = heapq.heappop(self._due)
            due[born] = hybrid
        for born in sorted(due):
            hybrid = due[born]
            while hybrid.train.next_s <= self._now_s:
                ended, left = hybrid.train.advance()
                for key in ended:
                    self._remove(hybrid, key)
                    self._trace.ends_s[key] = self._now_s
                if left:
                    self._trace.moved += [job.name for job in left]
                    self._leave(hybrid, left)
                changed = changed or bool(ended or left)
                for key, start_s in hybrid.train.at_work:
                    self._trace.starts_s.setdefault(key, start_s)
            hybrid.train.turns.clear()
            self._touch(hybrid)
            self._end_if_empty(hybrid)
        return changed

    def _leave(self, hybrid: _Hybrid, jobs: Sequence[SimulatedJob]) -> None:
        """Back to the line, with what is left; the members of a private hybrid as one."""
        left = [self._remove(hybrid, job.name) for job in jobs]
        self._jobs.keep(jobs)
        for members in [left] if hybrid.view.private else [[member] for member in left]:
            self._submit(self._jobs.entry(members))
        self._end_if_empty(hybrid)

    def _end_if_empty(self, hybrid: _Hybrid) -> None:
        if not hybrid.members:
            self._hybrids.pop(hybrid.view.id, None)


def _pool(device: DeviceView) -> str:
    return device.pool or device.name
