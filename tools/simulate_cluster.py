"""`python -m tools.simulate_cluster --gpus 16 --jobs 400`: what placement and policies do with many jobs.

It runs the server's own placement and policies on a simulated clock; nothing is trained, and a start takes no time.
Jobs are drawn from published statistics. No network trains faster than alone, so the rows differ in order, not in work.

Durations follow Philly (Jeon et al., ATC 2019), mean and standard deviation of the logarithms of 83,152 run times; they
end at `LONGEST_S`. Submissions are evenly random; memory is assumed.
"""

import argparse
import heapq
import math
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from statistics import fmean
from typing import NamedTuple

from unifiednn_core.base.errors import UnifiedNNError
from unifiednn_core.base.units import GIB, MIB, duration_text
from unifiednn_core.scheduling.base import Policy
from unifiednn_core.scheduling.line import DeviceView, FleetView, HybridView, Need, Placed, Placement, Plan, Waiting
from unifiednn_core.scheduling.placement import STAY_S, decide, predicted_bytes
from unifiednn_core.scheduling.registry import policy_named
from unifiednn_core.scheduling.simulator import SimulatedHybrid, SimulatedJob
from unifiednn_core.spec.devices import DeviceState
from unifiednn_core.spec.pooling import PoolMode
from unifiednn_core.spec.sharing import Sharing, SharingRule

MEAN_LOG_S, DEVIATION_LOG_S, LOAD = 6.846, 2.181, 1.2
LONGEST_S = 5 * 86_400.0
GPU_BYTES, CONTEXT_BYTES, JOB_BYTES = 80 * GIB, 600 * MIB, 2 * GIB
TURN_S, EPOCHS, UNKNOWN_S = 600.0, 10, 60.0
BY_TIME: Mapping[str, Mapping[str, object]] = {
    "sjf": {"by": "time"},
    "round_robin": {"unit": "seconds", "amount": TURN_S},
    **{name: {"turn_s": TURN_S} for name in ("fair", "finish_time")},
}
"""Parameters of policies for jobs of which only the time is known."""
POLICIES = ("fcfs", "sjf", "las", "round_robin")


class Job(NamedTuple):
    """What somebody submits."""

    submitted_s: float
    duration_s: float
    memory_bytes: int = JOB_BYTES


def drawn(*, jobs: int, gpus: int, seed: int) -> list[Job]:
    """Jobs that offer the GPUs `LOAD` times the work that they can do while jobs are submitted."""
    chance = random.Random(seed)
    durations_s = [min(LONGEST_S, math.exp(chance.gauss(MEAN_LOG_S, DEVIATION_LOG_S))) for _ in range(jobs)]
    last_s = sum(durations_s) / (LOAD * gpus)
    submissions_s = sorted(chance.uniform(0, last_s) for _ in range(jobs))
    return [Job(at_s, length_s) for at_s, length_s in zip(submissions_s, durations_s, strict=True)]


class Change(NamedTuple):
    """A device that is drained, lost or given back."""

    at_s: float
    device: str
    state: DeviceState


@dataclass(slots=True)
class FleetTrace:
    """What happened, by key of each sub-model. Seconds on the clock of the view."""

    placed_s: dict[str, float] = field(default_factory=dict)
    ends_s: dict[str, float] = field(default_factory=dict)
    placements: list[tuple[float, Placement]] = field(default_factory=list)
    moved: list[str] = field(default_factory=list)
    waits: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class _Member:
    entry: Waiting
    job: SimulatedJob
    moved_at_s: float | None = None
    joined: bool = False
    leaving: bool = False


@dataclass(slots=True, eq=False)
class _Hybrid:
    view: HybridView
    train: SimulatedHybrid
    members: dict[str, _Member] = field(default_factory=dict)


class Fleet:
    """Several devices on simulated time: placement and the policy of each hybrid are the very objects of the server.

    `jobs` says how long sub-models really train, by key; by default what the view expects is true. `coming` are
    submitted later. `watch` sees each view with the plan for it.
    """

    def __init__(
        self,
        view: FleetView,
        policy: Policy,
        *,
        jobs: Mapping[str, SimulatedJob] | None = None,
        coming: Iterable[Waiting] = (),
        changes: Iterable[Change] = (),
        watch: Callable[[FleetView, Plan], object] = lambda view, plan: None,
    ):
        self._view, self._policy, self._watch, self._now_s = view, policy, watch, view.now_s
        self._jobs = dict(jobs or {})
        self._devices = {device.name: replace(device, resting=False) for device in view.devices}
        self._hybrids: dict[str, _Hybrid] = {}
        self._line: dict[str, Waiting] = {}
        """What waits, by key of each sub-model. Its `left_s` is the expected part of what is really left."""
        self._order = count()
        self._events: list[tuple[float, int, Callable[[], object]]] = []
        self._pools: dict[str, float] = {}
        """Bytes of each pool that hybrids may share out."""
        self.trace = FleetTrace()
        for device in view.devices:
            free_bytes = math.inf if device.free_bytes is None else device.free_bytes
            self._pools[_pool(device)] = min(self._pools.get(_pool(device), math.inf), free_bytes)
        for hybrid in view.hybrids:
            if hybrid.device in self._devices:
                self._begin_with(hybrid)
        for entry in coming:
            self._at(entry.submitted_at_s, partial(self._submit, entry))
        for change in changes:
            self._at(change.at_s, partial(self._change, change))
        for entry in view.waiting:
            self._submit(entry)

    def run(self, most_looks: float = math.inf) -> FleetTrace:
        """Simulate until every sub-model that can be placed has ended, or `most_looks` moments have passed."""
        self._place()
        looks = 0
        while (looks := looks + 1) <= most_looks and (self._events or self._hybrids):
            next_s = min((one.train.next_s for one in self._hybrids.values()), default=math.inf)
            self._now_s = max(self._now_s, min(next_s, self._events[0][0] if self._events else math.inf))
            if self._events and self._events[0][0] <= self._now_s:
                while self._events and self._events[0][0] <= self._now_s:
                    heapq.heappop(self._events)[2]()
                self._place()
            if self._advance():
                self._place()
        return self.trace

    def _at(self, at_s: float, act: Callable[[], object]) -> None:
        heapq.heappush(self._events, (at_s, next(self._order), act))

    def _submit(self, entry: Waiting) -> None:
        whole_s = sum(_left_s(self._job(entry, key)) for key in entry.keys)
        expected = None if entry.left_s is None else entry.left_s / whole_s if whole_s > 0 else 1.0
        self._line.update(dict.fromkeys(entry.keys, replace(entry, left_s=expected)))
        if self._view.mode == "gathered" and not entry.private:
            self._at(max(self._now_s, entry.submitted_at_s + self._view.gather_s), lambda: None)

    def _job(self, entry: Waiting, key: str) -> SimulatedJob:
        if key not in self._jobs:
            step_s = (UNKNOWN_S if entry.left_s is None else max(entry.left_s / len(entry.keys), 1e-3)) / EPOCHS
            steps = max(1, round(step_s))
            self._jobs[key] = SimulatedJob(
                name=key, epochs=EPOCHS, steps_per_epoch=steps, seconds_per_step=step_s / steps
            )
        return self._jobs[key]

    def _change(self, change: Change) -> None:
        self._devices[change.device] = replace(self._devices[change.device], state=change.state)

    def _begin_with(self, view: HybridView) -> None:
        hybrid, used_bytes = self._made(view), view.used_bytes
        held_bytes = self._predicted_bytes(view) if used_bytes is None else used_bytes
        self._pools[_pool(self._devices[view.device])] += held_bytes
        for place, member in enumerate(view.members):
            entry = Waiting(
                keys=(member.key,),
                run_id=member.run_id,
                submitted_at_s=-math.inf,
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
            self._submit(entry)
            self._join(hybrid, _Member(self._line.pop(member.key), self._jobs[member.key], member.moved_at_s))

    def _predicted_bytes(self, view: HybridView) -> int:
        return predicted_bytes(view, self._devices[view.device], self._view.lanes) or 0

    def _join(self, hybrid: _Hybrid, member: _Member) -> None:
        hybrid.members[member.job.name], member.joined = member, True
        hybrid.train.join(member.job, self._now_s)

    def _seen(self) -> FleetView:
        hybrids, free = list[HybridView](), dict(self._pools)
        for hybrid in self._hybrids.values():
            lefts_s = hybrid.train.lefts_s(self._now_s)
            members = tuple(
                Placed(
                    key=key,
                    run_id=one.entry.run_id,
                    devices=one.entry.devices,
                    people=one.entry.people,
                    need=one.entry.need,
                    left_s=_expected_s(one.entry, lefts_s.get(key, _left_s(one.job))),
                    moved_at_s=one.moved_at_s,
                    leaving=one.leaving,
                )
                for key, one in hybrid.members.items()
            )
            hybrids.append(replace(hybrid.view, members=members, used_bytes=None))
            free[_pool(self._devices[hybrid.view.device])] -= self._predicted_bytes(hybrids[-1])
        devices = tuple(
            replace(one, free_bytes=None if math.isinf(free[_pool(one)]) else max(0, int(free[_pool(one)])))
            for one in self._devices.values()
        )
        waiting = []
        for entry in {entry.keys[0]: entry for entry in self._line.values()}.values():
            left_s = sum(_left_s(self._jobs[key]) for key in entry.keys)
            waiting.append(replace(entry, left_s=_expected_s(entry, left_s)))
        return replace(self._view, now_s=self._now_s, devices=devices, hybrids=tuple(hybrids), waiting=tuple(waiting))

    def _place(self) -> None:
        view = self._seen()
        plan = decide(view)
        self._watch(view, plan)
        self.trace.waits = plan.waits
        for placement in plan.placements:
            self.trace.placements.append((self._now_s, placement))
            entries = [self._line.pop(key) for key in placement.keys]
            hybrid = self._hybrid_of(placement, entries)
            for key, entry in zip(placement.keys, entries, strict=True):
                moved = key in self.trace.placed_s
                self.trace.placed_s.setdefault(key, self._now_s)
                member = _Member(entry, self._jobs[key], self._now_s if moved else None)
                hybrid.members[key] = member
                if moved:  # its checkpoint has to come; later it may move again
                    self._at(self._now_s + STAY_S, lambda: None)
                    self._at(self._now_s + self._view.move_cost_s, partial(self._arrive, hybrid, member))
                else:
                    self._join(hybrid, member)
        for move in plan.moves:
            hybrid = self._hybrids[move.hybrid_id]
            member = hybrid.members[move.key]
            member.leaving = True
            if member.joined:
                hybrid.train.leave(move.key, self._now_s)
            else:
                self._at(self._now_s, partial(self._turn_back, hybrid, member))

    def _arrive(self, hybrid: _Hybrid, member: _Member) -> None:
        if hybrid.members.get(member.job.name) is member and not member.leaving:
            self._join(hybrid, member)

    def _turn_back(self, hybrid: _Hybrid, member: _Member) -> None:
        """Let one leave that had not arrived."""
        if hybrid.members.get(member.job.name) is member:
            self._leave(hybrid, [member.job])

    def _hybrid_of(self, placement: Placement, entries: Sequence[Waiting]) -> _Hybrid:
        if placement.hybrid_id is not None:
            return self._hybrids[placement.hybrid_id]
        view = HybridView(
            id=f"simulated {next(self._order)}",
            device=placement.device,
            also=placement.also,
            private=placement.private,
            accepts=self._view.mode == "pooled" and not placement.private and all(one.need for one in entries),
            threads=placement.threads,
            profile=placement.profile,
            members=(),
            peak_bytes=entries[0].peak_bytes,
        )
        return self._made(view)

    def _made(self, view: HybridView) -> _Hybrid:
        hybrid = self._hybrids[view.id] = _Hybrid(view, SimulatedHybrid(self._policy))
        return hybrid

    def _advance(self) -> bool:
        """Let each hybrid do what is due now; returns whether anyone has ended or left."""
        changed = False
        for hybrid in list(self._hybrids.values()):
            while hybrid.train.next_s <= self._now_s:
                ended, left = hybrid.train.advance()
                for key in ended:
                    del hybrid.members[key]
                    self.trace.ends_s[key] = self._now_s
                if left:
                    self._leave(hybrid, left)
                changed = changed or bool(ended or left)
            hybrid.train.turns.clear()
            if not hybrid.members:
                self._hybrids.pop(hybrid.view.id, None)
        return changed

    def _leave(self, hybrid: _Hybrid, jobs: Sequence[SimulatedJob]) -> None:
        """Back to the line, with what is left; the members of a private hybrid as one."""
        self.trace.moved += [job.name for job in jobs]
        left = [hybrid.members.pop(job.name) for job in jobs]
        self._jobs.update({job.name: job for job in jobs})
        for members in [left] if hybrid.view.private else [[member] for member in left]:
            keys = tuple(member.job.name for member in members)
            self._line.update(dict.fromkeys(keys, replace(members[0].entry, keys=keys)))
        if not hybrid.members:
            self._hybrids.pop(hybrid.view.id, None)


def _pool(device: DeviceView) -> str:
    return device.pool or device.name


def _expected_s(entry: Waiting, left_s: float) -> float | None:
    return None if entry.left_s is None else entry.left_s * left_s


def _left_s(job: SimulatedJob) -> float:
    return (job.epochs * job.steps_per_epoch - job.steps_done) * job.seconds_per_step


class Simulated(NamedTuple):
    """Of all jobs that ended. A slowdown is turnaround by duration."""

    mean_turnaround_s: float
    p95_slowdown: float
    unfinished: int


def simulate(jobs: Sequence[Job], gpus: int, mode: PoolMode, policy: Policy) -> Simulated:
    """Simulate until every job that fits on a GPU has ended."""
    names = [f"cuda:{at}" for at in range(gpus)]
    devices = tuple(
        DeviceView(
            name=name, type="cuda", kind="GPU", total_bytes=GPU_BYTES, free_bytes=GPU_BYTES, context_bytes=CONTEXT_BYTES
        )
        for name in names
    )
    view = FleetView(now_s=0.0, devices=devices, rule=SharingRule(Sharing.EVERYONE), mode=mode, move_cost_s=math.inf)
    coming = [
        Waiting(
            keys=(f"job{at}",),
            run_id=f"job{at}",
            submitted_at_s=job.submitted_s,
            arrival=at,
            asked="cuda",
            devices=frozenset(names),
            private=False,
            need=Need(kept_bytes=job.memory_bytes // 3, working_bytes=job.memory_bytes - job.memory_bytes // 3),
            left_s=job.duration_s,
        )
        for at, job in enumerate(jobs)
    ]
    ends_s = Fleet(view, policy, coming=coming).run().ends_s
    turnarounds_s = {int(key[3:]): end_s - jobs[int(key[3:])].submitted_s for key, end_s in ends_s.items()}
    slowdowns = sorted(taken_s / jobs[at].duration_s for at, taken_s in turnarounds_s.items())
    return Simulated(fmean(turnarounds_s.values()), slowdowns[int(0.95 * len(slowdowns))], len(jobs) - len(ends_s))


def table(jobs: Sequence[Job], gpus: int, policies: Mapping[str, Policy]) -> Iterator[str]:
    """Lines with figures for each placement and policy. Alone on a GPU jobs run to their ends, under any policy."""
    yield f"{len(jobs):,} jobs on {gpus:,} GPUs, simulated"
    yield f"{'placement':<10} {'policy':<12} {'mean turnaround':>16} {'p95 slowdown':>13}"
    alone: tuple[PoolMode, str, Policy] = ("private", "-", next(iter(policies.values())))
    for mode, name, policy in [alone, *(("pooled", name, policy) for name, policy in policies.items())]:
        found = simulate(jobs, gpus, mode, policy)
        yield f"{mode:<10} {name:<12} {duration_text(found.mean_turnaround_s):>16} {found.p95_slowdown:>13,.1f}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a row for each placement and policy."""
    parser = argparse.ArgumentParser(prog="python -m tools.simulate_cluster")
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--jobs", type=int, default=200, help="number of jobs that are drawn")
    parser.add_argument("--policy", action="append", help=f"repeatable; by default {', '.join(POLICIES)}")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args(arguments)
    if asked.gpus < 1 or asked.jobs < 1:
        parser.error("--gpus and --jobs must be above 0")
    try:
        policies = {name: policy_named(name, BY_TIME.get(name, {})) for name in asked.policy or POLICIES}
    except UnifiedNNError as error:
        parser.error(str(error))
    jobs = drawn(jobs=asked.jobs, gpus=asked.gpus, seed=asked.seed)
    sys.stdout.writelines(f"{line}\n" for line in table(jobs, asked.gpus, policies))


if __name__ == "__main__":
    main()
