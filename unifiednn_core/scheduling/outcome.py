"""Figures of a simulated run: turnaround, slowdown, makespan, deadlines, and how fairly owners shared the device."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from unifiednn_core.scheduling.simulator import SimulatedJob, SimulatedTurn


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Figures of one policy. A slowdown is turnaround by duration alone."""

    mean_turnaround_s: float
    median_turnaround_s: float
    p95_turnaround_s: float
    mean_slowdown: float
    p95_slowdown: float
    makespan_s: float
    deadlines_met: float | None
    """Share of deadlines; None without any."""
    jain: float
    """Jain's index over owners of service by service due: 1 if all are equal, 1 / owners if one has all."""
    share_error: float
    """Largest difference of an owner's service and the service due, as a share of the device's time."""
    turns: int


def outcome(jobs: Sequence[SimulatedJob], turns: Sequence[SimulatedTurn]) -> Outcome:
    """The figures of a simulation to its end."""
    ends_s = {turn.submodel: turn.end_s for turn in turns}
    alone_s = {job.name: job.epochs * job.steps_per_epoch * job.seconds_per_step for job in jobs}
    turnarounds_s = {job.name: ends_s[job.name] - job.arrival_s for job in jobs}
    slowdowns = [turnarounds_s[job.name] / alone_s[job.name] for job in jobs]
    met = [ends_s[job.name] <= job.deadline_s for job in jobs if job.deadline_s is not None]
    had_s, due_s = shares(jobs, turns)
    ratios = [had_s[owner] / due_s[owner] for owner in due_s if due_s[owner]]
    return Outcome(
        mean_turnaround_s=fmean(turnarounds_s.values()),
        median_turnaround_s=median(turnarounds_s.values()),
        p95_turnaround_s=p95(list(turnarounds_s.values())),
        mean_slowdown=fmean(slowdowns),
        p95_slowdown=p95(slowdowns),
        makespan_s=max(ends_s.values()) - min(job.arrival_s for job in jobs),
        deadlines_met=fmean(met) if met else None,
        jain=sum(ratios) ** 2 / (len(ratios) * sum(ratio**2 for ratio in ratios)),
        share_error=max(abs(had_s[owner] - due_s[owner]) for owner in due_s) / sum(had_s.values()),
        turns=len(turns),
    )


def shares(
    jobs: Sequence[SimulatedJob], turns: Sequence[SimulatedTurn], until_s: float = math.inf
) -> tuple[Mapping[str, float], Mapping[str, float]]:
    """Seconds of service that each owner had until a moment, and that were due.

    While the device works, each owner with a job in line is due a part of it in proportion to the tickets.
    """
    owners, tickets = {job.name: job.owner for job in jobs}, {job.owner: job.tickets for job in jobs}
    ends_s = {turn.submodel: turn.end_s for turn in turns}
    comes = [(job.arrival_s, 1, job.owner) for job in jobs]
    changes = sorted([*comes, *((ends_s[job.name], -1, job.owner) for job in jobs)])
    had_s, due_s = dict.fromkeys(tickets, 0.0), dict.fromkeys(tickets, 0.0)
    for turn in turns:
        had_s[owners[turn.submodel]] += max(0.0, min(turn.end_s, until_s) - turn.start_s)
    present: Counter[str] = Counter()
    now_s = 0.0
    for at_s, change, owner in changes:
        passed_s, all_tickets = min(at_s, until_s) - now_s, sum(tickets[one] for one in +present)
        for one in +present if passed_s > 0 else ():
            due_s[one] += passed_s * tickets[one] / all_tickets
        now_s = max(now_s, min(at_s, until_s))
        present[owner] += change
    return had_s, due_s


def p95(values: Sequence[float]) -> float:
    """The smallest value that is at least as large as 95 % of them."""
    return sorted(values)[math.ceil(0.95 * len(values)) - 1]
