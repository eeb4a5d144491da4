"""`python -m tools.simulate_cluster --gpus 16 --jobs 400`: what placement and policies do with many jobs.

It runs the server's own placement and policies on a simulated clock; nothing is trained. Jobs are drawn from published
statistics, or come from a CSV file with the columns `submitted_s` and `duration_s`, and `memory_bytes` if known. No
network trains faster than alone, so the rows differ in order, not in work.

Statistics: Helios (Hu et al., SC 2021), median 206 s and mean 6,652 s of 1,580,464 GPU jobs; Philly (Jeon et al., ATC
2019), mean and standard deviation of the logarithms of 83,152 run times. Both have more very long jobs than a lognormal
distribution, so durations end at `LONGEST_S`. Submissions are evenly random; memory is assumed.
"""

import argparse
import csv
import math
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean, quantiles
from typing import NamedTuple

from tools.machine import ToolFailed
from unifiednn_core.base.errors import UnifiedNNError
from unifiednn_core.base.units import GIB, MIB, duration_text
from unifiednn_core.scheduling.base import Policy
from unifiednn_core.scheduling.fleet import run_fleet
from unifiednn_core.scheduling.line import DeviceView, FleetView, Need, Waiting
from unifiednn_core.scheduling.registry import policy_named
from unifiednn_core.scheduling.simulator import SimulatedHybrid, SimulatedJob
from unifiednn_core.spec.pooling import PoolMode
from unifiednn_core.spec.sharing import Sharing, SharingRule

LOG_DURATIONS: Mapping[str, tuple[float, float]] = {
    "helios": (math.log(206), math.sqrt(2 * math.log(6652 / 206))),
    "philly": (6.846, 2.181),
}
"""Mean and standard deviation of the logarithms of durations in seconds."""
LONGEST_S = 5 * 86_400.0
GPU_BYTES, CONTEXT_BYTES, JOB_BYTES = 80 * GIB, 600 * MIB, 2 * GIB
TURN_S, EPOCHS, STEP_S = 600.0, 10, 1.0
BY_TIME: Mapping[str, Mapping[str, object]] = {
    "sjf": {"by": "time"},
    "round_robin": {"unit": "seconds", "amount": TURN_S},
    "fair": {"turn_s": TURN_S},
    "finish_time": {"turn_s": TURN_S},
}
"""Parameters of policies for jobs of which only the time is known."""
POLICIES = ("fcfs", "sjf", "las", "round_robin")


class Job(NamedTuple):
    """What somebody submits."""

    submitted_s: float
    duration_s: float
    memory_bytes: int = JOB_BYTES


def drawn(statistics: str, *, jobs: int, gpus: int, load: float, seed: int) -> list[Job]:
    """Jobs that offer the GPUs `load` times the work that they can do while jobs are submitted."""
    chance, (mean, deviation) = random.Random(seed), LOG_DURATIONS[statistics]
    durations_s = [min(LONGEST_S, math.exp(chance.gauss(mean, deviation))) for _ in range(jobs)]
    last_s = sum(durations_s) / (load * gpus)
    submissions_s = sorted(chance.uniform(0, last_s) for _ in range(jobs))
    return [Job(at_s, length_s) for at_s, length_s in zip(submissions_s, durations_s, strict=True)]


def read(path: Path) -> list[Job]:
    """Jobs of a CSV file. Raises `ToolFailed`."""
    found = []
    with path.open(encoding="utf-8", newline="") as file:
        for number, row in enumerate(csv.DictReader(file), start=2):
            try:
                job = Job(
                    float(row["submitted_s"]), float(row["duration_s"]), int(row.get("memory_bytes") or JOB_BYTES)
                )
            except (KeyError, TypeError, ValueError):
                raise ToolFailed(f"{path}, line {number}: give numbers for submitted_s and duration_s.") from None
            if not (0 <= job.submitted_s < math.inf and 0 < job.duration_s < math.inf):
                raise ToolFailed(f"{path}, line {number}: submitted_s must be at least 0, duration_s above 0.")
            found.append(job)
    if not found:
        raise ToolFailed(f"{path} has no jobs.")
    return found


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
    known, coming = dict[str, SimulatedJob](), list[Waiting]()
    for at, job in enumerate(jobs):
        key = f"job{at:05}"
        steps = max(1, round(job.duration_s / STEP_S / EPOCHS))
        step_s = job.duration_s / (steps * EPOCHS)
        known[key] = SimulatedJob(name=key, epochs=EPOCHS, steps_per_epoch=steps, seconds_per_step=step_s)
        need = Need(kept_bytes=job.memory_bytes // 3, working_bytes=job.memory_bytes - job.memory_bytes // 3)
        coming.append(
            Waiting(
                keys=(key,),
                run_id=key,
                submitted_at_s=job.submitted_s,
                arrival=at,
                asked="cuda",
                devices=frozenset(names),
                private=False,
                people=(),
                need=need,
                left_s=job.duration_s,
            )
        )
    ends_s = run_fleet(view, policy, jobs=known, coming=coming, train=lambda run_id: SimulatedHybrid(policy)).ends_s
    taken = [
        (ends_s[key] - one.submitted_s, one.duration_s) for key, one in zip(known, jobs, strict=True) if key in ends_s
    ]
    if not taken:
        raise ToolFailed("No job fits on a GPU.")
    slowdowns = [turnaround_s / duration_s for turnaround_s, duration_s in taken]
    worst = quantiles(slowdowns, n=20, method="inclusive")[-1] if len(slowdowns) > 1 else slowdowns[0]
    return Simulated(fmean(turnaround_s for turnaround_s, _ in taken), worst, len(jobs) - len(taken))


def table(jobs: Sequence[Job], gpus: int, policies: Mapping[str, Policy]) -> Iterator[str]:
    """Lines with figures for each placement and policy. Alone on a GPU jobs run to their ends, under any policy."""
    yield f"{'placement':<10} {'policy':<12} {'mean turnaround':>16} {'p95 slowdown':>13}"
    arms: list[tuple[str, PoolMode, str]] = [("exclusive", "private", next(iter(policies)))]
    for where, mode, name in [*arms, *(("hybrids", "pooled", name) for name in policies)]:
        found = simulate(jobs, gpus, mode, policies[name])
        late = f"  {found.unfinished} never start" if found.unfinished else ""
        told = f"{where:<10} {name if mode == 'pooled' else '-':<12}"
        yield f"{told} {duration_text(found.mean_turnaround_s):>16} {found.p95_slowdown:>13,.1f}{late}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a row for each placement and policy."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.simulate_cluster", description=(__doc__ or "").split("\n")[2]
    )
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--jobs", type=int, default=200, help="number of jobs that are drawn")
    parser.add_argument("--load", type=float, default=1.2, help="work offered by the time it takes to arrive")
    parser.add_argument("--statistics", choices=LOG_DURATIONS, default="philly")
    parser.add_argument("--trace", type=Path, help="a CSV file with jobs")
    parser.add_argument("--policy", action="append", help=f"repeatable; by default {', '.join(POLICIES)}")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args(arguments)
    if asked.gpus < 1 or asked.jobs < 1 or asked.load <= 0:
        parser.error("--gpus, --jobs and --load must be above 0")
    try:
        policies = {name: policy_named(name, BY_TIME.get(name, {})) for name in asked.policy or POLICIES}
        if asked.trace:
            jobs = read(asked.trace)
        else:
            jobs = drawn(asked.statistics, jobs=asked.jobs, gpus=asked.gpus, load=asked.load, seed=asked.seed)
        sys.stdout.write(f"{len(jobs):,} jobs on {asked.gpus:,} GPUs, simulated\n")
        sys.stdout.writelines(f"{line}\n" for line in table(jobs, asked.gpus, policies))
    except (ToolFailed, UnifiedNNError, OSError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
