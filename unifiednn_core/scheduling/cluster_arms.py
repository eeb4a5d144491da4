"""What a cluster would do under each policy and placement: one simulation for each arm, and its figures. Pure.

Durations are known exactly, to placement as well; a policy that measures does so in its first steps. No network trains
faster than alone, but where `GAINS` has a measured figure.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, median
from typing import Any

from unifiednn_core.scheduling.cluster import (
    CHECKPOINT_S,
    MOVE_COST_S,
    Cluster,
    ClusterJob,
    WithoutRechecks,
    entries_of,
    failures_of,
    view_of,
)
from unifiednn_core.scheduling.fleet import run_fleet
from unifiednn_core.scheduling.fleet_events import FleetTrace, HeldDevices
from unifiednn_core.scheduling.outcome import p95
from unifiednn_core.scheduling.simulator import SimulatedHybrid
from unifiednn_core.scheduling.workloads import by_time
from unifiednn_core.spec.pooling import PoolMode

POINTS = 100
"""Of utilisation over time."""
TURN_S = 600.0
"""Turns of policies that take turns by time."""


@dataclass(frozen=True, slots=True)
class Gain:
    """Company that was measured."""

    lanes: int
    slowdown: float
    """How many times as long a step takes beside others in all lanes."""
    source: str


GAINS: Mapping[str, Gain] = {"cpu": Gain(2, 1.15, "docs/results/equal-small-cpu.json, eight LeNets in two lanes")}
"""By type of device. Nothing was measured on GPUs, and gangs train on GPUs alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterArm:
    """One way to run a cluster."""

    policy: str
    placement: PoolMode = "pooled"
    """`private`: each job has its GPU to itself; `pooled`: it joins who trains there if none is free."""
    moves: bool = False
    failures: bool = False

    @property
    def name(self) -> str:
        """In words."""
        more = [word for word, on in (("moves", self.moves), ("failures", self.failures)) if on]
        where = "exclusive" if self.placement == "private" else "hybrids"
        return f"{where}, {' + '.join([self.policy, *more])}"


POLICIES = ("fcfs", "sjf", "srtf", "las", "fair", "round_robin")


def usual_arms(*, failures: bool) -> tuple[ClusterArm, ...]:
    """The table: an exclusive line, hybrids under each policy, with moves, and with failures where there are any."""
    plain = [ClusterArm(policy="fcfs", placement="private"), *(ClusterArm(policy=name) for name in POLICIES)]
    moved = [ClusterArm(policy=name, moves=True) for name in ("fcfs", "sjf")]
    failing = [
        ClusterArm(policy="fcfs", placement="private", failures=True),
        ClusterArm(policy="sjf", moves=True, failures=True),
    ]
    return (*plain, *moved, *(failing if failures else ()))


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmOutcome:
    """Figures of an arm. A slowdown is turnaround by duration, a wait the time to the first step."""

    arm: ClusterArm
    text: str
    jobs: int
    unfinished: int
    """Jobs that no GPU could train."""
    mean_turnaround_s: float
    median_turnaround_s: float
    p95_turnaround_s: float
    median_slowdown: float
    p95_slowdown: float
    mean_wait_s: float
    p95_wait_s: float
    makespan_s: float
    utilisation: float
    """Share of all GPUs that had somebody, from the first submission to the last."""
    busy: tuple[tuple[float, float], ...]
    """The same over time: seconds from the first submission, share."""
    moves: int
    deaths: int
    """Hybrids that failures ended."""
    lost_gpu_s: float
    """Training that failures took."""
    decisions: int
    """Turns, and plans of placement."""
    cpu_s: float
    """Of the simulation."""

    @property
    def document(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self) | {"name": self.arm.name}


def run_arm(
    arm: ClusterArm, cluster: Cluster, jobs: Sequence[ClusterJob], *, seed: int = 0, turn_s: float = TURN_S,
    gains: bool = False, checkpoint_s: float = CHECKPOINT_S, off: float = 0.0,
) -> ArmOutcome:  # fmt: skip
    """Simulate an arm to the end of all jobs. Raises `BadInput` for an unknown policy."""
    begun_s = time.process_time()
    trace, text = trace_of(
        arm, cluster, jobs, seed=seed, turn_s=turn_s, gains=gains, checkpoint_s=checkpoint_s, off=off
    )  # fmt: skip
    return outcome_of(arm, text, cluster, jobs, trace, lambda: time.process_time() - begun_s)


def trace_of(
    arm: ClusterArm, cluster: Cluster, jobs: Sequence[ClusterJob], *, seed: int = 0, turn_s: float = TURN_S,
    gains: bool = False, checkpoint_s: float = CHECKPOINT_S, off: float = 0.0,
) -> tuple[FleetTrace, str]:  # fmt: skip
    """What happens, and the policy in words."""
    policy, gain = WithoutRechecks(by_time(arm.policy, turn_s)), gain_of(cluster) if gains else None
    lanes, slowdown = (1, 1.0) if gain is None or arm.placement == "private" else (gain.lanes, gain.slowdown)
    waiting, simulated = entries_of(cluster, jobs, slowdown=slowdown, off=off, seed=seed)
    trace = run_fleet(
        view_of(cluster, arm.placement, moves=arm.moves, lanes=lanes), policy, jobs=simulated, coming=waiting,
        failures=failures_of(cluster, seed) if arm.failures else (), checkpoint_s=checkpoint_s,
        fetch_s=MOVE_COST_S, lanes=lanes, train=lambda run_id: SimulatedHybrid(policy),
    )  # fmt: skip
    return trace, str(policy)


def gain_of(cluster: Cluster) -> Gain | None:
    """What was measured on devices like these; None if nothing was."""
    return GAINS.get("cpu") if all(kind.is_cpu for kind in cluster.kinds) else None


def outcome_of(
    arm: ClusterArm,
    text: str,
    cluster: Cluster,
    jobs: Sequence[ClusterJob],
    trace: FleetTrace,
    cpu_s: Callable[[], float],
) -> ArmOutcome:
    """The figures of a simulation."""
    ended = [job for job in jobs if job.name in trace.ends_s]
    turnarounds_s = [trace.ends_s[job.name] - job.submitted_s for job in ended] or [0.0]
    slowdowns = [
        taken_s / job.duration_s for taken_s, job in zip(turnarounds_s, ended, strict=bool(ended))
    ] or [1.0]  # fmt: skip
    waits_s = [trace.starts_s[job.name] - job.submitted_s for job in ended] or [0.0]
    first_s, last_s = min(job.submitted_s for job in jobs), max(job.submitted_s for job in jobs)
    end_s = max(trace.ends_s.values(), default=last_s)
    gpus = {job.name: job.gpus for job in jobs}
    whole = busy_shares(trace.held, first_s, last_s, cluster.gpus, 1)
    return ArmOutcome(
        arm=arm, text=text, jobs=len(jobs), unfinished=len(jobs) - len(ended),
        mean_turnaround_s=fmean(turnarounds_s), median_turnaround_s=median(turnarounds_s),
        p95_turnaround_s=p95(turnarounds_s), median_slowdown=median(slowdowns), p95_slowdown=p95(slowdowns),
        mean_wait_s=fmean(waits_s), p95_wait_s=p95(waits_s), makespan_s=end_s - first_s,
        utilisation=whole[0][1], busy=busy_shares(trace.held, first_s, end_s, cluster.gpus, POINTS),
        moves=len(trace.moved), deaths=trace.deaths, decisions=trace.turns + trace.plans,
        lost_gpu_s=sum(lost_s * gpus[name] for name, lost_s in trace.lost_s.items()), cpu_s=cpu_s(),
    )  # fmt: skip


def busy_shares(
    held: Iterable[HeldDevices], first_s: float, last_s: float, gpus: int, points: int
) -> tuple[tuple[float, float], ...]:
    """Share of GPUs that had a hybrid in each of so many equal stretches of time, with the start of each."""
    width_s = (last_s - first_s) / points
    if width_s <= 0:
        return ((0.0, 0.0),)
    busy_s, change = [0.0] * points, [0.0] * (points + 1)
    for one in held:
        begin, end = (min(float(points), max(0.0, (at_s - first_s) / width_s)) for at_s in (one.begin_s, one.end_s))
        if begin >= end:
            continue
        first, last = int(begin), min(points - 1, int(end))
        if first == last:
            busy_s[first] += (end - begin) * one.devices
            continue
        busy_s[first] += (first + 1 - begin) * one.devices
        busy_s[last] += (end - last) * one.devices
        change[first + 1] += one.devices
        change[last] -= one.devices
    now, shares = 0.0, list[tuple[float, float]]()
    for at in range(points):
        now += change[at]
        shares.append((at * width_s, (busy_s[at] + now) / gpus))
    return tuple(shares)


def arms_named(
    policies: Sequence[str], placements: Sequence[PoolMode], *, moves: bool, failures: bool
) -> tuple[ClusterArm, ...]:
    """Arms of these policies; where jobs are alone on a GPU, all policies are the same line."""
    shared = [ClusterArm(policy=name, moves=moves, failures=failures) for name in policies if "pooled" in placements]
    alone = [ClusterArm(policy="fcfs", placement="private", failures=failures)] if "private" in placements else []
    return (*alone, *shared)
