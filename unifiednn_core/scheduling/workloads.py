"""Job sets for simulations, drawn from fitted statistics of public traces of GPU clusters.

Only statistics are kept here, no rows of a trace:

- Helios (SenseTime, 2020; Hu et al., "Characterization and Prediction of Deep Learning Workloads in Large-Scale GPU
  Datacenters", SC 2021). Durations: median 206 s and mean 6,652 s of 1,580,464 GPU jobs, from the table
  `helios_cluster_summary.csv` of the authors' artifact. Submissions by hour and the share of jobs with one GPU: cluster
  Saturn, read from its figures; users: 5 % have almost half of the GPU time, read from its figure.
- Philly (Microsoft, 2017; Jeon et al., "Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads",
  ATC 2019). Durations: mean and standard deviation of the logarithms of the 83,152 run times above 0 that Alibaba's
  analysis of its own trace (`cluster-trace-gpu-v2020`) keeps beside them. Hours, users and share as above.

Both have more very long jobs than a lognormal distribution, so durations end at `longest_s`.
"""

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from unifiednn_core.scheduling.base import Policy
from unifiednn_core.scheduling.registry import policy_named
from unifiednn_core.scheduling.simulator import SimulatedJob

HOUR_S, DAY_S = 3600.0, 86_400.0
EPOCHS = 10
"""Epochs of each job: traces do not know them."""
STEP_S = 1.0
_SATURN = (
    140,
    143,
    113,
    105,
    98,
    90,
    85,
    83,
    95,
    137,
    184,
    199,
    174,
    186,
    207,
    236,
    243,
    220,
    181,
    186,
    203,
    196,
    176,
    180,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """Fitted statistics of a trace."""

    name: str
    median_s: float
    """Of the lognormal distribution of durations."""
    sigma: float
    """Standard deviation of the logarithms of durations."""
    longest_s: float = 5 * DAY_S
    by_hour: tuple[int, ...] = _SATURN
    """Relative number of submissions in each hour of the day."""
    one_gpu_share: float = 0.7
    """Share of jobs that ask for one GPU, the only ones that one device can train."""
    owners: int = 20
    owner_skew: float = 1.5
    """The n-th owner submits in proportion to n ** -owner_skew."""


HELIOS = Statistics(name="helios", median_s=206.0, sigma=math.sqrt(2 * math.log(6652 / 206)))
PHILLY = Statistics(name="philly", median_s=math.exp(6.846), sigma=2.181)
STATISTICS = {one.name: one for one in (HELIOS, PHILLY)}


def draw(statistics: Statistics, *, jobs: int, load: float, seed: int) -> tuple[SimulatedJob, ...]:
    """Draw jobs that offer one device `load` times the work that it can do while they arrive, from midnight on."""
    chance = random.Random(seed)
    durations_s = [
        min(statistics.longest_s, statistics.median_s * math.exp(chance.gauss(0.0, statistics.sigma)))
        for _ in range(jobs)
    ]
    weights = [place**-statistics.owner_skew for place in range(1, statistics.owners + 1)]
    owners = chance.choices([f"owner{place:02}" for place in range(1, statistics.owners + 1)], weights, k=jobs)
    gaps = list(accumulate(chance.expovariate(1.0) for _ in range(jobs)))
    arrivals_s = _by_hour([gap * sum(durations_s) / load / gaps[-1] for gap in gaps], statistics.by_hour)
    return tuple(
        job_of(f"job{place:04}", arrival_s, duration_s, owner)
        for place, (arrival_s, duration_s, owner) in enumerate(zip(arrivals_s, durations_s, owners, strict=True))
    )


def job_of(name: str, arrival_s: float, duration_s: float, owner: str) -> SimulatedJob:
    """A job of this duration in steps of `STEP_S`, at least one in each epoch."""
    steps = max(1, round(duration_s / STEP_S / EPOCHS))
    return SimulatedJob(
        name=name, arrival_s=arrival_s, owner=owner, epochs=EPOCHS, steps_per_epoch=steps, seconds_per_step=STEP_S
    )


def by_time(name: str, turn_s: float) -> Policy:
    """A policy for jobs of which nothing is known but their time. Raises `BadInput` for an unknown name."""
    parameters: dict[str, dict[str, object]] = {
        "sjf": {"by": "time"},
        "round_robin": {"unit": "seconds", "amount": turn_s},
        "fair": {"turn_s": turn_s},
        "finish_time": {"turn_s": turn_s},
    }
    return policy_named(name, parameters.get(name, {}))


def alone_s(job: SimulatedJob) -> float:
    """Duration of a job that has the device to itself."""
    return job.epochs * job.steps_per_epoch * job.seconds_per_step


def at_load(jobs: Sequence[SimulatedJob], load: float) -> tuple[SimulatedJob, ...]:
    """The jobs with arrivals stretched or compressed until they offer one device this load."""
    first_s, last_s = min(job.arrival_s for job in jobs), max(job.arrival_s for job in jobs)
    factor = sum(map(alone_s, jobs)) / load / (last_s - first_s) if last_s > first_s else 0.0
    return tuple(replace(job, arrival_s=(job.arrival_s - first_s) * factor) for job in jobs)


def with_deadlines(jobs: Iterable[SimulatedJob], slack: float) -> tuple[SimulatedJob, ...]:
    """The jobs, each due `slack` times its duration after its arrival."""
    return tuple(replace(job, deadline_s=job.arrival_s + slack * alone_s(job)) for job in jobs)


def _by_hour(times_s: Sequence[float], by_hour: Sequence[int]) -> list[float]:
    """Times that pass evenly, as times of day at which as many jobs are submitted as in that hour of a trace."""
    shares = [number / sum(by_hour) for number in by_hour]
    begins = [0.0, *accumulate(shares)]
    found = []
    for time_s in times_s:
        day, rest = divmod(time_s / DAY_S, 1.0)
        hour = max(at for at in range(len(shares)) if begins[at] <= rest)
        found.append(day * DAY_S + (hour + (rest - begins[hour]) / shares[hour]) * HOUR_S)
    return found
