"""Runs a policy without a network or a device: on simulated time, or as stages of memory use.

The rules are the engine's: a quantum ends at completion, after its epochs (at the n-th epoch end from here), steps or
seconds (rounded up to a whole step), or at the first step boundary after another job has arrived. Jobs that arrived
meanwhile are in line before the job whose quantum ended.
"""

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from unifiednn_core.scheduling.base import JobView, Policy, Quantum, View, enactable
from unifiednn_core.scheduling.shares import Shares


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedJob:
    """What scheduling needs to know about one sub-model."""

    name: str
    arrival_s: float = 0.0
    """Jobs with equal values arrive in the order in which they are given."""
    priority: int = 0
    parameters: int = 1
    epochs: int = 1
    steps_per_epoch: int = 1
    seconds_per_step: float = 1.0
    measured: bool = False
    """Whether policies know its speed before its first step."""
    steps_done: int = 0
    """Steps from before the simulation."""
    service_s: float = 0.0
    """Service from before the simulation."""
    owner: str = ""
    tickets: float = 1.0
    deadline_s: float | None = None


@dataclass(frozen=True, slots=True)
class SimulatedTurn:
    """A turn of one job on the device. Seconds count from the start of the simulation."""

    submodel: str
    start_s: float
    end_s: float
    steps: int
    reason: str


def simulate(jobs: Sequence[SimulatedJob], policy: Policy) -> tuple[SimulatedTurn, ...]:
    """Run all jobs to completion on one device; raises `ValueError` for a policy that chooses a job not in line."""
    ticks = count()
    coming = deque(_Progress(job, place) for place, job in enumerate(sorted(jobs, key=lambda job: job.arrival_s)))
    line: dict[str, _Progress] = {}
    turns: list[SimulatedTurn] = []
    now_s, shares = 0.0, Shares()
    while coming or line:
        if not line:  # the device idles only while the line is empty
            now_s = coming[0].job.arrival_s
        _admit(coming, line, now_s, ticks)
        decision = policy.decide(_view(line, now_s, shares))
        name, chosen = decision.job, line.get(decision.job)
        if chosen is None:
            raise ValueError(f"The policy chose '{name}', which is not in line. In line: {', '.join(line)}.")
        steps, seconds_per_step = chosen.steps_within(decision.quantum), chosen.job.seconds_per_step
        if coming:
            steps = _first_step_reaching(coming[0].job.arrival_s, now_s, seconds_per_step, steps)
        start_s, now_s = now_s, now_s + steps * seconds_per_step
        turns.append(SimulatedTurn(name, start_s, now_s, steps, decision.reason))
        chosen.steps_done += steps
        chosen.waited_s += start_s - chosen.line_since_s
        chosen.charge(shares, now_s - start_s)
        _admit(coming, line, now_s, ticks)
        chosen.in_line_since, chosen.line_since_s = next(ticks), now_s
        if not chosen.steps_left:
            del line[name]
    return tuple(turns)


@dataclass(frozen=True, slots=True)
class Stage:
    """A period in which one sub-model holds the device, and the others that have not ended."""

    holder: str
    started: frozenset[str]
    """Sub-models that have trained and not ended, with the holder: their weights and optimizers stay on the device."""
    waiting: frozenset[str]
    """Sub-models that have not trained yet."""


def stages(jobs: Sequence[SimulatedJob], policy: Policy) -> tuple[Stage, ...]:
    """Simulate a run of these jobs, in order of arrival, through every stage that could need the most memory.

    Once every job in a round of turns has had one with the same others, later rounds need no more; then the next in
    line is taken to its end. A turn of some seconds ends no job, because the duration of a step is unknown.
    """
    alive = {job.name: _Progress(job, arrival) for arrival, job in enumerate(jobs)}
    starts_seen: dict[str, int] = {}
    """How many jobs had started at the last turn of each."""
    ticks, shares, now_s = count(len(jobs)), Shares(), 0.0
    found: list[Stage] = []
    while alive:
        decision, _ = enactable(policy, _view(alive, now_s, shares))
        chosen, quantum = alive[decision.job], decision.quantum
        starts = len(starts_seen) + (decision.job not in starts_seen)
        again = starts_seen.get(decision.job) == starts
        starts_seen[decision.job] = starts
        started = alive.keys() & starts_seen.keys()
        found.append(Stage(decision.job, frozenset(started), frozenset(alive.keys() - started)))
        steps = 0 if quantum.kind == "seconds" else chosen.steps_within(quantum)
        chosen.steps_done += steps
        spent_s = steps * chosen.job.seconds_per_step or quantum.amount
        chosen.charge(shares, spent_s)
        now_s += spent_s
        chosen.in_line_since = next(ticks)
        if again or not chosen.steps_left:
            del alive[decision.job]
    return tuple(found)


@dataclass(slots=True, eq=False)
class _Progress:
    job: SimulatedJob
    arrival: int
    in_line_since: int = 0
    line_since_s: float = 0.0
    waited_s: float = 0.0
    steps_done: int = field(init=False)
    service_s: float = field(init=False)

    def __post_init__(self) -> None:
        self.steps_done, self.service_s = self.job.steps_done, self.job.service_s

    @property
    def steps_left(self) -> int:
        return self.job.epochs * self.job.steps_per_epoch - self.steps_done

    def charge(self, shares: Shares, seconds: float) -> None:
        self.service_s += seconds
        shares.charge(self.job.owner, seconds)

    def view(self, now_s: float, owner_service_s: float) -> JobView:
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
            seconds_per_step=self.job.seconds_per_step if self.steps_done or self.job.measured else None,
            waiting_s=self.waited_s + (now_s - self.line_since_s),
            service_s=self.service_s,
            owner=self.job.owner,
            tickets=self.job.tickets,
            owner_service_s=owner_service_s,
            deadline_s=self.job.deadline_s,
        )

    def steps_within(self, quantum: Quantum) -> int:
        steps = self.steps_left
        if quantum.kind == "epochs":
            last_epoch = self.steps_done // self.job.steps_per_epoch + math.ceil(quantum.amount)
            steps = last_epoch * self.job.steps_per_epoch - self.steps_done
        elif quantum.kind == "steps":
            steps = math.ceil(quantum.amount)
        elif quantum.kind == "seconds":
            steps = _first_step_reaching(quantum.amount, 0.0, self.job.seconds_per_step, steps)
        return min(steps, self.steps_left)


def _view(line: Mapping[str, _Progress], now_s: float, shares: Shares) -> View:
    """What the policy sees of the jobs in line."""
    service_s = shares.of({progress.job.owner: progress.job.tickets for progress in line.values()})
    jobs = [progress.view(now_s, service_s.get(progress.job.owner, 0.0)) for progress in line.values()]
    return View(tuple(jobs), now_s)


def _admit(coming: deque[_Progress], line: dict[str, _Progress], now_s: float, ticks: Iterator[int]) -> None:
    """Move jobs that have arrived into the line, in order of arrival."""
    while coming and coming[0].job.arrival_s <= now_s:
        progress = coming.popleft()
        progress.in_line_since, progress.line_since_s = next(ticks), progress.job.arrival_s
        line[progress.job.name] = progress


def _first_step_reaching(moment_s: float, now_s: float, seconds_per_step: float, at_most: int) -> int:
    """Fewest steps, at least 1 and at most `at_most`, after which `moment_s` is reached."""
    steps = max(1, math.ceil(min((moment_s - now_s) / seconds_per_step, at_most)))
    if steps > 1 and now_s + (steps - 1) * seconds_per_step >= moment_s:  # the division rounded up
        return steps - 1
    if steps < at_most and now_s + steps * seconds_per_step < moment_s:  # the division rounded down
        return steps + 1
    return steps
