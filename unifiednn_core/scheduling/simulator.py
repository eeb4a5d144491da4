"""Runs the very same policy objects on simulated time, without a network or a device.

The rules are the engine's: a quantum ends at completion, after its epochs (at the n-th epoch end from here), steps or
seconds (rounded up to a whole step), or at the first step boundary after another job has arrived. Whoever arrived
meanwhile then stands in line before the job whose quantum ended.
"""

import math
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from statistics import fmean

from unifiednn_core.errors import BadInput, Finding
from unifiednn_core.scheduling.base import Decision, JobView, Policy, Quantum, View
from unifiednn_core.views.runs import Slice


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedJob:
    """One sub-model, as far as scheduling is concerned."""

    name: str
    arrival_s: float = 0.0
    """Jobs that arrive at the same moment arrive in the order in which they are given."""
    priority: int = 0
    parameters: int = 1
    epochs: int = 1
    steps_per_epoch: int = 1
    seconds_per_step: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTimes:
    """How one job fared."""

    wait_s: float
    """In line, from arrival to the end."""
    service_s: float
    """Holding the device."""
    turnaround_s: float
    """From arrival to the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """What happened in a simulation. Seconds count from the simulated 0."""

    slices: tuple[Slice, ...]
    """One for each quantum, in order of time; neighbours of the same job are not joined."""
    jobs: dict[str, JobTimes]
    """By name, in the order given."""
    makespan_s: float
    """From the first start to the last end."""

    @property
    def mean_turnaround_s(self) -> float:
        """Mean over the jobs."""
        return fmean(times.turnaround_s for times in self.jobs.values())


def simulate(jobs: Sequence[SimulatedJob], policy: Policy) -> Trace:
    """Run all jobs to completion on one device.

    Raises `BadInput` where there is no job, two share a name, or a count or duration cannot be; `ValueError` where the
    policy chooses a job that is not in line.
    """
    _check(jobs)
    ticks = count()
    in_order = sorted(jobs, key=lambda job: job.arrival_s)
    coming = deque(_Progress(job, arrival) for arrival, job in enumerate(in_order))
    line: list[_Progress] = []
    slices: list[Slice] = []
    done: dict[str, JobTimes] = {}
    now_s = 0.0
    while coming or line:
        if not line:  # the device idles only while nobody is in line
            now_s = coming[0].job.arrival_s
        _admit(coming, line, now_s, ticks)
        decision = policy.decide(View(tuple(progress.view(now_s) for progress in line), now_s))
        chosen = _chosen(line, decision)
        steps = min(chosen.steps_left, chosen.steps_within(decision.quantum))
        if coming:
            arrival_s = coming[0].job.arrival_s
            steps = _first_step_reaching(arrival_s, now_s, chosen.job.seconds_per_step, steps)
        start_s, now_s = now_s, now_s + steps * chosen.job.seconds_per_step
        chosen.run(steps, start_s, now_s)
        slices.append(Slice(submodel=decision.job, start_s=start_s, end_s=now_s, steps=steps, reason=decision.reason))
        _admit(coming, line, now_s, ticks)
        chosen.in_line_since = next(ticks)
        if not chosen.steps_left:
            line.remove(chosen)
            done[decision.job] = chosen.times(now_s)
    return Trace(
        slices=tuple(slices),
        jobs={job.name: done[job.name] for job in jobs},
        makespan_s=slices[-1].end_s - slices[0].start_s,
    )


@dataclass(slots=True, eq=False)
class _Progress:
    """Where one job stands."""

    job: SimulatedJob
    arrival: int
    in_line_since: int = 0
    line_since_s: float = 0.0
    waited_s: float = 0.0
    service_s: float = 0.0
    steps_done: int = 0

    @property
    def steps_left(self) -> int:
        return self.job.epochs * self.job.steps_per_epoch - self.steps_done

    def view(self, now_s: float) -> JobView:
        return JobView(
            name=self.job.name,
            arrival=self.arrival,
            in_line_since=self.in_line_since,
            priority=self.job.priority,
            parameters=self.job.parameters,
            epochs=self.job.epochs,
            epochs_done=self.steps_done // self.job.steps_per_epoch,
            steps_total=self.job.epochs * self.job.steps_per_epoch,
            steps_done=self.steps_done,
            seconds_per_step=self.job.seconds_per_step if self.steps_done else None,
            waiting_s=self.waited_s + (now_s - self.line_since_s),
        )

    def steps_within(self, quantum: Quantum) -> int:
        if quantum.kind == "completion":
            return self.steps_left
        if quantum.kind == "epochs":
            last_epoch = self.steps_done // self.job.steps_per_epoch + math.ceil(quantum.amount)
            return last_epoch * self.job.steps_per_epoch - self.steps_done
        if quantum.kind == "steps":
            return math.ceil(quantum.amount)
        return _first_step_reaching(quantum.amount, 0.0, self.job.seconds_per_step, self.steps_left)

    def run(self, steps: int, start_s: float, end_s: float) -> None:
        self.waited_s += start_s - self.line_since_s
        self.service_s += end_s - start_s
        self.steps_done += steps
        self.line_since_s = end_s

    def times(self, end_s: float) -> JobTimes:
        turnaround_s = end_s - self.job.arrival_s
        return JobTimes(wait_s=self.waited_s, service_s=self.service_s, turnaround_s=turnaround_s)


def _admit(coming: deque[_Progress], line: list[_Progress], now_s: float, ticks: Iterator[int]) -> None:
    """Move those who have arrived into the line, in order of arrival."""
    while coming and coming[0].job.arrival_s <= now_s:
        progress = coming.popleft()
        progress.in_line_since, progress.line_since_s = next(ticks), progress.job.arrival_s
        line.append(progress)


def _chosen(line: Sequence[_Progress], decision: Decision) -> _Progress:
    for progress in line:
        if progress.job.name == decision.job:
            return progress
    names = ", ".join(progress.job.name for progress in line)
    raise ValueError(f"The policy chose '{decision.job}', which is not in line. In line: {names}.")


def _first_step_reaching(moment_s: float, now_s: float, seconds_per_step: float, at_most: int) -> int:
    """Fewest steps, at least 1 and at most `at_most`, after which `moment_s` is reached."""
    steps = max(1, math.ceil(min((moment_s - now_s) / seconds_per_step, at_most)))
    if steps > 1 and now_s + (steps - 1) * seconds_per_step >= moment_s:  # the division rounded up
        return steps - 1
    if steps < at_most and now_s + steps * seconds_per_step < moment_s:  # the division rounded down
        return steps + 1
    return steps


def _check(jobs: Sequence[SimulatedJob]) -> None:
    findings = [] if jobs else [_finding("jobs", "There is no job to simulate.", "Give at least one.")]
    times_named = Counter(job.name for job in jobs)
    for name, times in times_named.items():
        if times > 1:
            findings.append(_finding(f"jobs.{name}", f"{times} jobs have this name.", "Give each its own."))
    for job in jobs:
        for field in ("epochs", "steps_per_epoch", "seconds_per_step"):
            value = getattr(job, field)
            if not 0 < value < math.inf:
                findings.append(_finding(f"jobs.{job.name}.{field}", f"It is {value}.", "Give a number above 0."))
        if not 0 <= job.arrival_s < math.inf:
            field = f"jobs.{job.name}.arrival_s"
            findings.append(_finding(field, f"It is {job.arrival_s}.", "Give 0 or more seconds."))
    if findings:
        raise BadInput(findings)


def _finding(field: str, message: str, remedy: str) -> Finding:
    return Finding(title="Simulated job", field=field, message=message, remedy=remedy)
