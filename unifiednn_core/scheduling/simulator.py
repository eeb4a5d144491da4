"""Runs a policy without a network or a device: on simulated time, or as stages of memory use.

The rules are the engine's: a quantum ends at completion, after its epochs (at the n-th epoch end from here), steps or
seconds (rounded up to a whole step). At the first step boundary after another job has arrived the policy is asked
again: if it stays with its choice the quantum goes on, and if not, that one keeps its place in line.
"""

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from unifiednn_core.scheduling.base import Decision, JobView, Policy, Quantum, View, enactable
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
    coming, hybrid = deque(sorted(jobs, key=lambda job: job.arrival_s)), SimulatedHybrid(policy)
    while coming or hybrid.next_s < math.inf:
        if coming and coming[0].arrival_s <= hybrid.next_s:
            hybrid.join(coming[0], coming.popleft().arrival_s)
        else:
            hybrid.advance()
    return tuple(hybrid.turns)


class SimulatedHybrid:
    """A hybrid on a device, on simulated time; jobs may join and leave. Who holds it advances it to `next_s`."""

    def __init__(self, policy: Policy):
        self._policy, self._shares = policy, Shares()
        self._line: dict[str, _Progress] = {}
        self._coming: list[_Progress] = []
        self._leaving: set[str] = set()
        self._arrivals, self._ticks = count(), count()
        self._turn: _Turn | None = None
        self.turns: list[SimulatedTurn] = []
        """Turns that have ended."""
        self.next_s = math.inf
        """Next step boundary at which anything changes; infinite if nothing trains."""

    def join(self, job: SimulatedJob, now_s: float) -> None:
        """Add a job, from the next step boundary on."""
        self._coming.append(_Progress(job, next(self._arrivals), line_since_s=now_s))
        self._ask_at(now_s)

    def leave(self, name: str, now_s: float) -> None:
        """Let a job leave at the next step boundary."""
        self._leaving.add(name)
        self._ask_at(now_s)

    def advance(self) -> tuple[list[str], list[SimulatedJob]]:
        """Do what is due at `next_s`; returns names of jobs that have ended, and jobs that leave, with their progress.

        As in the engine, one whose quantum is used up goes to the end of the line before others join it.
        """
        now_s, turn, ended = self.next_s, self._turn, list[str]()
        if turn is not None:
            turn.job.steps_done = turn.steps_at(now_s)
            if turn.job.steps_done >= turn.until_step:
                self._end_turn(now_s)
                if not turn.job.steps_left:
                    del self._line[turn.job.name]
                    self._leaving.discard(turn.job.name)
                    ended.append(turn.job.name)
        self._admit()
        left = self._let_go(now_s)
        if self._turn is not None:
            self._ask_again(now_s)
        if self._turn is None and self._line:
            self._begin_turn(now_s)
        self.next_s = math.inf if self._turn is None else self._turn.end_s
        return ended, left

    def lefts_s(self, now_s: float) -> dict[str, float]:
        """Seconds of service until each job ends."""
        found = {one.name: one.steps_left * one.job.seconds_per_step for one in (*self._line.values(), *self._coming)}
        if (turn := self._turn) is not None:
            steps_left = turn.job.steps_left + turn.job.steps_done - turn.begun_step
            found[turn.job.name] = steps_left * turn.job.job.seconds_per_step - (now_s - turn.begun_s)
        return found

    @property
    def at_work(self) -> tuple[str, float] | None:
        """The job whose turn lasts, and since when; None if nothing trains."""
        return None if self._turn is None else (self._turn.job.name, self._turn.start_s)

    def _ask_at(self, now_s: float) -> None:
        """Look again at the first step boundary from now on."""
        self.next_s = min(self.next_s, now_s if self._turn is None else self._turn.boundary_s(now_s))

    def _admit(self) -> None:
        for progress in self._coming:
            progress.in_line_since = next(self._ticks)
            self._line[progress.name] = progress
        self._coming.clear()

    def _let_go(self, now_s: float) -> list[SimulatedJob]:
        left = []
        for name in [name for name in self._line if name in self._leaving]:
            if self._turn is not None and self._turn.job.name == name:
                self._end_turn(now_s)
            left.append(self._line.pop(name).as_job())
        self._leaving.clear()
        return left

    def _ask_again(self, now_s: float) -> None:
        """Ask whether the choice is still the same; one that is sent away keeps its place in line."""
        turn, decision = self._turn, self._decision(now_s)
        if turn is None:
            return
        if decision.job != turn.job.name:
            self._end_turn(now_s, keeps_place=True)
        elif decision.quantum != turn.decision.quantum:
            turn.grant(decision, now_s)

    def _begin_turn(self, now_s: float) -> None:
        decision = self._decision(now_s)
        self._turn = _Turn(self._line[decision.job], decision, now_s)

    def _decision(self, now_s: float) -> Decision:
        at_work = () if self._turn is None else (self._turn.job.name,)
        decision = self._policy.decide(_view(self._line, now_s, self._shares, at_work))
        if decision.job not in self._line:
            in_line = ", ".join(self._line)
            raise ValueError(f"The policy chose '{decision.job}', which is not in line. In line: {in_line}.")
        return decision

    def _end_turn(self, now_s: float, *, keeps_place: bool = False) -> None:
        turn, self._turn = self._turn, None
        if turn is None:
            return
        job, steps = turn.job, turn.job.steps_done - turn.first_step
        self.turns.append(SimulatedTurn(job.name, turn.start_s, now_s, steps, turn.reason))
        job.waited_s += turn.start_s - job.line_since_s
        job.charge(self._shares, now_s - turn.start_s)
        job.line_since_s = now_s
        if not keeps_place:
            job.in_line_since = next(self._ticks)


class _Turn:
    """A turn that lasts. Seconds are counted from its begin or from its last new quantum, so that none are lost."""

    __slots__ = ("begun_s", "begun_step", "decision", "first_step", "job", "reason", "start_s", "until_step")

    def __init__(self, job: "_Progress", decision: Decision, now_s: float):
        self.job, self.start_s, self.first_step, self.reason = job, now_s, job.steps_done, decision.reason
        self.grant(decision, now_s)

    def grant(self, decision: Decision, now_s: float) -> None:
        """Begin a quantum."""
        self.decision, self.begun_s, self.begun_step = decision, now_s, self.job.steps_done
        self.until_step = self.begun_step + self.job.steps_within(decision.quantum)

    @property
    def end_s(self) -> float:
        return self._at(self.until_step)

    def boundary_s(self, now_s: float) -> float:
        """The first step boundary from now on."""
        steps = self.until_step - self.begun_step
        seconds_per_step = self.job.job.seconds_per_step
        return self._at(self.begun_step + _first_step_reaching(now_s, self.begun_s, seconds_per_step, steps))

    def steps_at(self, now_s: float) -> int:
        """Steps of its job that are done at a step boundary."""
        return self.begun_step + round((now_s - self.begun_s) / self.job.job.seconds_per_step)

    def _at(self, step: int) -> float:
        return self.begun_s + (step - self.begun_step) * self.job.job.seconds_per_step


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

    @property
    def name(self) -> str:
        return self.job.name

    def as_job(self) -> SimulatedJob:
        """The job with its progress."""
        return replace(self.job, steps_done=self.steps_done, service_s=self.service_s)

    def charge(self, shares: Shares, seconds: float) -> None:
        self.service_s += seconds
        shares.charge(self.job.owner, seconds)

    def view(self, now_s: float, owner_service_s: float, *, waits: bool = True) -> JobView:
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
            waiting_s=self.waited_s + (now_s - self.line_since_s if waits else 0.0),
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


def _view(line: Mapping[str, _Progress], now_s: float, shares: Shares, at_work: tuple[str, ...] = ()) -> View:
    """What the policy sees of the jobs in line."""
    service_s = shares.of({progress.job.owner: progress.job.tickets for progress in line.values()})
    jobs = [
        progress.view(now_s, service_s.get(progress.job.owner, 0.0), waits=name not in at_work)
        for name, progress in line.items()
    ]
    return View(tuple(jobs), now_s, at_work)


def _first_step_reaching(moment_s: float, now_s: float, seconds_per_step: float, at_most: int) -> int:
    """Fewest steps, at least 1 and at most `at_most`, after which `moment_s` is reached."""
    steps = max(1, math.ceil(min((moment_s - now_s) / seconds_per_step, at_most)))
    if steps > 1 and now_s + (steps - 1) * seconds_per_step >= moment_s:  # the division rounded up
        return steps - 1
    if steps < at_most and now_s + steps * seconds_per_step < moment_s:  # the division rounded down
        return steps + 1
    return steps
