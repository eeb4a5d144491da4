"""Simulations of a cluster as somebody asks for them: all arms on one set of jobs, as a JSON document.

`python -m unifiednn_core.scheduling.cluster_run [PID]` reads a request (JSON) from its input and writes one line for
the jobs and one for each arm as it ends. The dashboard starts it in the background, and it ends with its parent of
that PID.
"""

import json
import math
import os
import resource
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import TypeAdapter, ValidationError

from unifiednn_core.base.errors import BadInput
from unifiednn_core.base.units import GIB
from unifiednn_core.scheduling.cluster import (
    CHECKPOINT_S,
    Cluster,
    ClusterJob,
    at_cluster_load,
    cluster_of,
    draw_jobs,
    memory_drawn,
)
from unifiednn_core.scheduling.cluster_arms import (
    TURN_S,
    ArmOutcome,
    ClusterArm,
    arms_named,
    gain_of,
    run_arm,
    usual_arms,
)
from unifiednn_core.scheduling.cluster_trace import is_ours, read_jobs
from unifiednn_core.scheduling.traces import read_trace
from unifiednn_core.scheduling.workloads import HOUR_S, STATISTICS, alone_s, by_time
from unifiednn_core.spec.pooling import PoolMode

Placed = Literal["exclusive", "pooled"]
MODES: Mapping[Placed, PoolMode] = {"exclusive": "private", "pooled": "pooled"}
MOST_GPUS, MOST_JOBS = 10_000, 100_000
LOOK_S = 1.0
"""How often a simulation looks whether its server is still there."""
NICENESS, MOST_CPU_S, MOST_BYTES = 10, 3600, 4 * GIB
"""Limits of a simulation in the background."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRequest:
    """What somebody asks to simulate."""

    gpus: int = 1000
    gpu_gib: float = 80.0
    kinds: tuple[str, ...] = ()
    """Instead of both: `H100:600:80`, name, number and GiB."""
    gpus_per_host: int = 8
    trace: str | None = None
    """Path of a trace; without one, jobs are drawn."""
    statistics: str = "philly"
    jobs: int = 30_000
    load: float | None = 1.2
    """Work offered by what the GPUs can do while jobs are submitted; None leaves the moments of a trace as they are."""
    seed: int = 0
    several: float = 0.0
    """Share of drawn jobs that claim two to eight GPUs."""
    policies: tuple[str, ...] = ()
    """None: the table of `usual_arms`."""
    placements: tuple[Placed, ...] = ("exclusive", "pooled")
    moves: bool = False
    failure_h: float | None = None
    """Mean hours between two failures of a GPU."""
    host_failure_h: float | None = None
    checkpoint_s: float = CHECKPOINT_S
    estimates_off: float = 0.0
    """Standard deviation of the logarithm of what placement believes of durations; 0 knows them."""
    gains: bool = False
    turn_s: float = TURN_S

    @property
    def document(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


def request_of(document: Mapping[str, Any]) -> ClusterRequest:
    """The request of a document. Raises `BadInput` for one that no cluster can carry out."""
    known = {field.name for field in fields(ClusterRequest)}
    unknown = sorted(document.keys() - known)
    if unknown:
        raise _wrong(unknown[0], "is not an entry of a simulation", f"Choose from: {', '.join(sorted(known))}.")
    try:
        request = TypeAdapter(ClusterRequest).validate_python(dict(document))
    except ValidationError as error:
        first = error.errors()[0]
        raise _wrong(str(first["loc"][0]), "has a value that is not valid", f"{first['msg']}.") from None
    check(request)
    return request


def check(request: ClusterRequest) -> None:
    """Raise `BadInput` for the first figure that makes no sense."""
    ranges = {
        "gpus": (1, MOST_GPUS), "gpu_gib": (1, 10_000), "gpus_per_host": (1, 1000), "jobs": (2, MOST_JOBS),
        "load": (0.01, 100), "several": (0, 1), "failure_h": (0.1, 1e9), "host_failure_h": (0.1, 1e9),
        "checkpoint_s": (1, 1e9), "estimates_off": (0, 5), "turn_s": (1, 1e9), "seed": (0, 2**53),
    }  # fmt: skip
    for name, (least, most) in ranges.items():
        value = getattr(request, name)
        if value is not None and not (math.isfinite(value) and least <= value <= most):
            raise _wrong(name, f"cannot be {value:g}", f"Give a number from {least:g} to {most:g}.")
    if request.statistics not in STATISTICS:
        raise _wrong("statistics", f"'{request.statistics}' are unknown", f"Choose one of: {', '.join(STATISTICS)}.")
    if not request.placements or not set(request.placements) <= set(get_args(Placed)):
        raise _wrong("placement", "is unknown", f"Choose from: {', '.join(get_args(Placed))}.")
    for policy in request.policies:
        by_time(policy, request.turn_s)
    cluster = cluster_for(request)
    if cluster.gpus > MOST_GPUS:
        raise _wrong("kinds", f"are {cluster.gpus} GPUs in all", f"Simulate at most {MOST_GPUS:,}.")


def cluster_for(request: ClusterRequest) -> Cluster:
    """The GPUs of a request."""
    failures = {
        name: math.inf if each_h is None else each_h * HOUR_S
        for name, each_h in (("gpu_failure_s", request.failure_h), ("host_failure_s", request.host_failure_h))
    }
    memory_bytes = int(request.gpu_gib * GIB)
    return cluster_of(
        request.gpus, memory_bytes, request.kinds, gpus_per_host=request.gpus_per_host, **failures
    )  # fmt: skip


def jobs_for(request: ClusterRequest, cluster: Cluster) -> tuple[ClusterJob, ...]:
    """The jobs of a request: of our CSV, of a public trace with assumed memory, or drawn. Raises `BadInput`."""
    if request.trace is None:
        if request.load is None:
            raise _wrong("load", "is missing", "Give the load of jobs that are drawn, such as 1.2.")
        return draw_jobs(
            STATISTICS[request.statistics], cluster, jobs=request.jobs, load=request.load, seed=request.seed,
            several=request.several,
        )  # fmt: skip
    path = Path(request.trace)
    if is_ours(path):
        found = read_jobs(path, cluster, most=request.jobs)
    else:
        found = memory_drawn(
            [
                ClusterJob(
                    name=job.name, submitted_s=job.arrival_s, duration_s=alone_s(job), owner=job.owner, kept_bytes=0
                )
                for job in read_trace(path, jobs=request.jobs)
            ],
            cluster,
            seed=request.seed,
        )
    return found if request.load is None else at_cluster_load(found, cluster.gpus, request.load)


def arms_for(request: ClusterRequest, cluster: Cluster) -> tuple[ClusterArm, ...]:
    """The arms of a request."""
    if not request.policies:
        return tuple(arm for arm in usual_arms(failures=cluster.fails) if _name(arm.placement) in request.placements)
    modes = [MODES[name] for name in request.placements]
    return arms_named(request.policies, modes, moves=request.moves, failures=cluster.fails)


def _name(mode: PoolMode) -> Placed:
    return "exclusive" if mode == "private" else "pooled"


def outcomes(request: ClusterRequest, cluster: Cluster, jobs: Sequence[ClusterJob]) -> Iterator[ArmOutcome]:
    """Simulate all arms, one after another."""
    for arm in arms_for(request, cluster):
        yield run_arm(
            arm, cluster, jobs, seed=request.seed, turn_s=request.turn_s, gains=request.gains,
            checkpoint_s=request.checkpoint_s, off=request.estimates_off,
        )  # fmt: skip


def workload(request: ClusterRequest, cluster: Cluster, jobs: Sequence[ClusterJob]) -> dict[str, Any]:
    """What is simulated, as JSON: with what was assumed."""
    gain = gain_of(cluster) if request.gains else None
    return {
        "request": request.document,
        "gpus": cluster.gpus,
        "hosts": sum(math.ceil(kind.gpus / cluster.gpus_per_host) for kind in cluster.kinds),
        "kinds": [kind._asdict() for kind in cluster.kinds],
        "jobs": len(jobs),
        "owners": len({job.owner for job in jobs}),
        "gpu_hours": sum(job.duration_s * job.gpus for job in jobs) / HOUR_S,
        "longest_h": max(job.duration_s for job in jobs) / HOUR_S,
        "submitted_h": (max(job.submitted_s for job in jobs) - min(job.submitted_s for job in jobs)) / HOUR_S,
        "arms": [arm.name for arm in arms_for(request, cluster)],
        "gain": None if gain is None else asdict(gain),
    }


def document(request: ClusterRequest) -> dict[str, Any]:
    """Everything at once. Raises `BadInput`, and `OSError` for a trace that cannot be read."""
    check(request)
    cluster = cluster_for(request)
    jobs = jobs_for(request, cluster)
    told = workload(request, cluster, jobs)
    return {"workload": told, "arms": [one.document for one in outcomes(request, cluster, jobs)]}


def _wrong(name: str, message: str, remedy: str) -> BadInput:
    return BadInput.of("Simulation", name, f"{name} {message}.", remedy)


def main() -> None:
    """Simulate the request on standard input."""
    if len(sys.argv) > 1:
        threading.Thread(target=_end_with, args=(int(sys.argv[1]),), daemon=True).start()
    os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_CPU, (MOST_CPU_S, MOST_CPU_S))
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    try:
        request = request_of(json.load(sys.stdin))
        cluster = cluster_for(request)
        jobs = jobs_for(request, cluster)
        _write(workload(request, cluster, jobs))
        for one in outcomes(request, cluster, jobs):
            _write(one.document)
        _write({"done": True})
    except (BadInput, OSError) as error:
        _write({"refused": str(error)})


def _end_with(parent: int) -> None:
    """End this process once the server that started it has ended: nobody waits for the result any more."""
    while os.getppid() == parent:
        time.sleep(LOOK_S)
    os._exit(1)


def _write(line: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
