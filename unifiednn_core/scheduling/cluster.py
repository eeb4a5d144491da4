"""A simulated cluster: GPUs, jobs, failures, for `fleet.run_fleet`. Pure.

What is assumed, because no trace tells it: the memory of jobs that are drawn (`draw_jobs`), how long repairs take
(`GPU_REPAIR_S`, `HOST_REPAIR_S`), and that no network trains faster or slower on another kind of GPU.
"""

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import ClassVar, NamedTuple

from unifiednn_core.base.errors import BadInput
from unifiednn_core.base.units import GIB, MIB
from unifiednn_core.scheduling.base import TO_COMPLETION, Decision, Policy, View
from unifiednn_core.scheduling.fleet_events import FleetFailure
from unifiednn_core.scheduling.line import DeviceView, FleetView, Need, Waiting
from unifiednn_core.scheduling.simulator import SimulatedJob
from unifiednn_core.scheduling.srtf import AGAIN
from unifiednn_core.scheduling.workloads import Statistics, alone_s, draw, job_of
from unifiednn_core.spec.pooling import PoolMode
from unifiednn_core.spec.sharing import Sharing, SharingRule

CONTEXT_BYTES = 600 * MIB
"""Of a worker on a GPU, as `preflight.estimate` assumes."""
GPU_REPAIR_S, HOST_REPAIR_S = 600.0, 3600.0
CHECKPOINT_S, MOVE_COST_S = 30.0, 10.0
KEPT_BYTES, KEPT_SIGMA, MOST_STEPS_BY_KEPT, MOST_OF_GPU = 0.4 * GIB, 1.0, 4.0, 0.85
"""Drawn memory: the median of what a job keeps between steps, up to so many times as much more in a step, and the most
of the smallest GPU."""
SEVERAL = (2, 2, 4, 8)
"""GPUs of drawn jobs that claim several, equally often each."""


class GpuKind(NamedTuple):
    """GPUs of one kind."""

    name: str
    gpus: int
    memory_bytes: int

    @property
    def is_cpu(self) -> bool:
        """Whether they are no GPUs but logical CPUs, as their name says: `cpu`, or `cpu-...`."""
        return self.name.split("-")[0].lower() == "cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """What there is. Hosts have GPUs of one kind."""

    kinds: tuple[GpuKind, ...]
    gpus_per_host: int = 8
    gpu_failure_s: float = math.inf
    """Mean time between two failures of a GPU."""
    host_failure_s: float = math.inf

    @property
    def gpus(self) -> int:
        """All GPUs."""
        return sum(kind.gpus for kind in self.kinds)

    @property
    def fails(self) -> bool:
        """Whether anything ever fails."""
        return min(self.gpu_failure_s, self.host_failure_s) < math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterJob:
    """What somebody submits: one network."""

    name: str
    submitted_s: float
    duration_s: float
    """Alone on its GPUs."""
    kept_bytes: int
    """Memory from its first step to its end."""
    working_bytes: int = 0
    """More while it steps."""
    owner: str = ""
    gpus: int = 1
    kind: str | None = None
    """Kind of GPU that it asks for."""
    priority: int = 0


def cluster_of(
    gpus: int, memory_bytes: int, kinds: Sequence[str] = (), *, gpus_per_host: int = 8,
    gpu_failure_s: float = math.inf, host_failure_s: float = math.inf,
) -> Cluster:  # fmt: skip
    """A cluster of equal GPUs, or of `kinds` such as `H100:600:80` (name, number, GiB). Raises `BadInput`."""
    found = []
    for text in kinds:
        name, *figures = text.split(":")
        try:
            count, gib = (float(figure) for figure in figures)
        except ValueError:
            count = gib = 0.0
        if not name or count < 1 or count != int(count) or not 0 < gib < math.inf:
            message = f"'{text}' is not a kind of GPU."
            raise BadInput.of("Kind", "--kind", message, "Give name, number and GiB, such as H100:600:80.")
        found.append(GpuKind(name, int(count), int(gib * GIB)))
    names = [kind.name for kind in found]
    if len(set(names)) < len(names):
        raise BadInput.of("Kind", "--kind", "Two kinds have one name.", "Give each kind once, with its number of GPUs.")
    return Cluster(
        kinds=tuple(found) or (GpuKind("GPU", gpus, memory_bytes),), gpus_per_host=gpus_per_host,
        gpu_failure_s=gpu_failure_s, host_failure_s=host_failure_s,
    )  # fmt: skip


def draw_jobs(
    statistics: Statistics, cluster: Cluster, *, jobs: int, load: float, seed: int, several: float = 0.0
) -> tuple[ClusterJob, ...]:
    """Draw jobs from fitted statistics of a trace that offer a cluster a load; a share `several` claims 2 to 8 GPUs.

    Memory and the number of GPUs are assumed. Each fits on the smallest GPU.
    """
    chance = random.Random(seed + 1)
    found = [
        ClusterJob(
            name=job.name, submitted_s=job.arrival_s, owner=job.owner, duration_s=alone_s(job), kept_bytes=0,
            gpus=chance.choice(SEVERAL) if chance.random() < several else 1,
        )
        for job in draw(statistics, jobs=jobs, load=load * cluster.gpus, seed=seed)
    ]  # fmt: skip
    drawn = memory_drawn(found, cluster, seed=seed)
    return at_cluster_load(drawn, cluster.gpus, load) if several else drawn


def memory_drawn(jobs: Sequence[ClusterJob], cluster: Cluster, *, seed: int) -> tuple[ClusterJob, ...]:
    """The jobs with memory that is assumed; each fits on the smallest GPU."""
    chance = random.Random(seed + 4)
    most_bytes = MOST_OF_GPU * min(kind.memory_bytes for kind in cluster.kinds) - CONTEXT_BYTES
    found = []
    for job in jobs:
        kept_bytes = min(most_bytes / 2, KEPT_BYTES * math.exp(chance.gauss(0.0, KEPT_SIGMA)))
        working_bytes = min(most_bytes - kept_bytes, kept_bytes * chance.uniform(1.0, MOST_STEPS_BY_KEPT))
        found.append(replace(job, kept_bytes=int(kept_bytes), working_bytes=int(working_bytes)))
    return tuple(found)


def at_cluster_load(jobs: Sequence[ClusterJob], gpus: int, load: float) -> tuple[ClusterJob, ...]:
    """The jobs with submissions stretched or compressed until they offer the GPUs this load."""
    first_s, last_s = min(job.submitted_s for job in jobs), max(job.submitted_s for job in jobs)
    work_s = sum(job.duration_s * job.gpus for job in jobs)
    factor = work_s / (load * gpus * (last_s - first_s)) if last_s > first_s else 0.0
    return tuple(replace(job, submitted_s=(job.submitted_s - first_s) * factor) for job in jobs)


def view_of(cluster: Cluster, mode: PoolMode, *, moves: bool, lanes: int = 1) -> FleetView:
    """The empty cluster as placement sees it, with everyone's leave to share processes."""
    devices = tuple(
        DeviceView(
            name=name, type="cpu" if kind.is_cpu else "cuda", kind=kind.name, total_bytes=kind.memory_bytes,
            free_bytes=kind.memory_bytes, context_bytes=CONTEXT_BYTES,
        )
        for kind in cluster.kinds for name in names_of(cluster, kind)
    )  # fmt: skip
    cost_s = MOVE_COST_S if moves else math.inf
    rule = SharingRule(Sharing.EVERYONE)
    return FleetView(now_s=0.0, devices=devices, rule=rule, mode=mode, lanes=lanes, move_cost_s=cost_s)


def names_of(cluster: Cluster, kind: GpuKind) -> tuple[str, ...]:
    """Names of the GPUs of a kind, `HOST/cuda:N`."""
    per = cluster.gpus_per_host
    return tuple(f"{kind.name}-{at // per:03}/cuda:{at % per}" for at in range(kind.gpus))


def entries_of(
    cluster: Cluster, jobs: Sequence[ClusterJob], *, slowdown: float = 1.0, off: float = 0.0, seed: int = 0
) -> tuple[list[Waiting], dict[str, SimulatedJob]]:
    """Jobs as placement and hybrids see them.

    Placement knows how long each takes, or is off by a factor whose logarithm has the standard deviation `off`.
    """
    chance = random.Random(seed + 3)
    by_kind = {kind.name: frozenset(names_of(cluster, kind)) for kind in cluster.kinds}
    everywhere = frozenset[str]().union(*by_kind.values())
    waiting, simulated = list[Waiting](), dict[str, SimulatedJob]()
    for place, job in enumerate(jobs):
        one = replace(job_of(job.name, 0.0, job.duration_s, job.owner), priority=job.priority, slowdown=slowdown)
        simulated[job.name] = one
        several = job.gpus > 1
        waiting.append(
            Waiting(
                keys=(job.name,), run_id=job.name, submitted_at_s=job.submitted_s, arrival=place,
                asked=job.kind or "auto",
                devices=everywhere if job.kind is None else by_kind.get(job.kind, frozenset()),
                private=several, people=(job.owner,), claims=job.gpus,
                need=None if several else need_of(job),
                peak_bytes=CONTEXT_BYTES + job.kept_bytes + job.working_bytes if several else None,
                left_s=one.epochs * one.steps_per_epoch * one.seconds_per_step * math.exp(chance.gauss(0.0, off)),
            )
        )  # fmt: skip
    return waiting, simulated


def need_of(job: ClusterJob) -> Need:
    """Memory of a job, without a context."""
    return Need(kept_bytes=job.kept_bytes, working_bytes=job.working_bytes, company_bytes=job.working_bytes)


def failures_of(cluster: Cluster, seed: int) -> Iterator[FleetFailure]:
    """Failures in order, without an end: GPUs and hosts, each as often in any hour."""
    chance, now_s = random.Random(seed + 2), 0.0
    names = [name for kind in cluster.kinds for name in names_of(cluster, kind)]
    hosts = [tuple(found) for _, found in groupby(names, key=lambda name: name.partition("/")[0])]
    rates = len(names) / cluster.gpu_failure_s, len(hosts) / cluster.host_failure_s
    while sum(rates) > 0:
        now_s += chance.expovariate(sum(rates))
        if chance.random() * sum(rates) < rates[0]:
            yield FleetFailure(at_s=now_s, devices=(chance.choice(names),), back_s=now_s + GPU_REPAIR_S)
        else:
            yield FleetFailure(at_s=now_s, devices=chance.choice(hosts), back_s=now_s + HOST_REPAIR_S)


@dataclass(frozen=True, slots=True)
class WithoutRechecks:
    """Drops a policy's re-check quanta (`srtf.AGAIN`), because simulated speeds never change."""

    policy: Policy
    name: ClassVar[str] = "without_rechecks"
    summary: ClassVar[str] = "Decides as another policy."

    def decide(self, view: View) -> Decision:
        """The decision of the policy; its look at speeds comes with the next arrival or end."""
        decision = self.policy.decide(view)
        if decision.quantum is AGAIN:
            return Decision(decision.job, TO_COMPLETION, decision.reason)
        return decision

    def __str__(self) -> str:
        return str(self.policy)
