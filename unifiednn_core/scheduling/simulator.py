"""Runs a policy without a network or a device: on simulated time, or as stages of memory use.

The rules are the engine's: a quantum ends at completion, after its epochs (at the n-th epoch end from here), steps or
seconds (rounded up to a whole step). At the first step boundary after another job has arrived the policy is asked
again: if it stays with its choice the quantum goes on, and if not, that one keeps its place in line. In further lanes
those step that the policy names next, as long as that pays (`scheduling.company`).
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from unifiednn_core.scheduling.base import Decision, JobView, Policy, Quantum, Shares, View, decide_or_fall_back
from unifiednn_core.scheduling.company import LEAST_GAIN, MOST_DELAY


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
    slowdown: float = 1.0
    """How many times as long a step takes beside another job."""


@dataclass(frozen=True, slots=True)
class SimulatedTurn:
    """A turn of one job on the device. Seconds count from the start of the simulation."""

    submodel: str
    start_s: float
    end_s: float
    steps: int
    reason: str
    lane: int = 1
    """1 for the policy's choice, more for its company."""


MayJoin = Callable[["JobProgress", "Sequence[JobProgress]", "Iterable[JobProgress]"], bool]
"""Whether a candidate may step beside those at work, the policy's choice first; both are among the last."""


def pays(candidate: "JobProgress", at_work: "Sequence[JobProgress]", unended: "Iterable[JobProgress]" = ()) -> bool:
    """Whether company makes enough progress, and does not delay a job that goes first (`company.Rates.objection`)."""
    jobs = [one.job for one in at_work]
    first = jobs[0]
    if first.slowdown > MOST_DELAY and (candidate.job.priority > first.priority or first.deadline_s is not None):
        return False
    before = 1.0 if len(jobs) == 1 else sum(1 / job.slowdown for job in jobs)
    return sum(1 / job.slowdown for job in (candidate.job, *jobs)) >= LEAST_GAIN * before


def simulate(
    jobs: Sequence[SimulatedJob], policy: Policy, *, lanes: int = 1, may_join: MayJoin = pays
) -> tuple[SimulatedTurn, ...]:
    """Run all jobs to completion on one device, in the order in which turns start.

    Raises `ValueError` for a policy that chooses a job not in line.
    """
    coming, hybrid = deque(sorted(jobs, key=lambda job: job.arrival_s)), SimulatedHybrid(policy, lanes, may_join)
    while coming or hybrid.next_s < math.inf:
        if coming and coming[0].arrival_s <= hybrid.next_s:
            hybrid.join(coming[0], coming.popleft().arrival_s)
        else:
            hybrid.advance()
    return tuple(sorted(hybrid.turns, key=lambda turn: (turn.start_s, turn.lane)))


class SimulatedHybrid:
    """A hybrid on a device, on simulated time; jobs may join and leave. Who holds it advances it to `next_s`."""

    def __init__(self, policy: Policy, lanes: int = 1, may_join: MayJoin = pays):
        self._policy, self._shares, self._lanes, self._may_join = policy, Shares(), lanes, may_join
        self._line: dict[str, JobProgress] = {}
        self._coming: list[JobProgress] = []
        self._leaving: set[str] = set()
        self._arrivals, self._ticks = count(), count()
        self._turns: dict[str, _Turn] = {}
        """Turns that last, by job."""
        self._first: _Turn | None = None
        """That of the policy's choice."""
        self._changed = False
        """Whether to ask the policy again although no quantum is used up."""
        self.turns: list[SimulatedTurn] = []
        """Turns that have ended."""
        self.next_s = math.inf
        """Next step boundary at which anything changes; infinite if nothing trains."""

    def join(self, job: SimulatedJob, now_s: float) -> None:
        """Add a job, from the next step boundary on."""
        self._coming.append(JobProgress(job, next(self._arrivals), line_since_s=now_s))
        self._ask_at(now_s)

    def leave(self, name: str, now_s: float) -> None:
        """Let a job leave at the next step boundary."""
        self._leaving.add(name)
        self._ask_at(now_s)

    def advance(self) -> tuple[list[str], list[SimulatedJob]]:
        """Do what is due at `next_s`; returns names of jobs that have ended, and jobs that leave, with their progress.

        As in the engine, one whose quantum is used up goes to the end of the line before others join it.
        """
        now_s, ended = self.next_s, list[str]()
        for turn in list(self._turns.values()):
            over = turn.end_s <= now_s  # whatever rounding says of its steps
            turn.job.steps_done = turn.until_step if over else turn.steps_at(now_s)
            if turn.job.steps_done >= turn.until_step:
                self._end_turn(turn, now_s)
                if not turn.job.steps_left:
                    del self._line[turn.job.name]
                    self._leaving.discard(turn.job.name)
                    ended.append(turn.job.name)
        self._admit()
        left = self._let_go(now_s)
        if self._first is not None and self._changed:
            self._ask_again(self._first, now_s)
        self._changed = False
        self._fill(now_s)
        self.next_s = min((turn.end_s for turn in self._turns.values()), default=math.inf)
        return ended, left

    def lefts_s(self, now_s: float) -> dict[str, float]:
        """Seconds of service until each job ends."""
        found = {one.name: one.steps_left * one.job.seconds_per_step for one in (*self._line.values(), *self._coming)}
        for turn in self._turns.values():
            steps_left = turn.job.steps_left + turn.job.steps_done - turn.begun_step
            found[turn.job.name] = steps_left * turn.step_s - (now_s - turn.begun_s)
        return found

    def _ask_at(self, now_s: float) -> None:
        """Look again at the first step boundary from now on."""
        self._changed = True
        self.next_s = min(self.next_s, now_s if self._first is None else self._first.boundary_s(now_s))

    def _admit(self) -> None:
        for progress in self._coming:
            progress.in_line_since = next(self._ticks)
            self._line[progress.name] = progress
        self._coming.clear()

    def _let_go(self, now_s: float) -> list[SimulatedJob]:
        left = []
        for name in [name for name in self._line if name in self._leaving]:
            if name in self._turns:
                self._end_turn(self._turns[name], now_s)
            left.append(self._line.pop(name).as_job())
        self._leaving.clear()
        return left

    def _ask_again(self, turn: "_Turn", now_s: float) -> None:
        """Ask whether the choice is still the same; one that is sent away keeps its place in line."""
        decision = self._decision(self._line, now_s)
        if decision.job != turn.job.name:
            self._end_turn(turn, now_s, keeps_place=True)
        elif decision.quantum != turn.decision.quantum:
            turn.grant(decision, now_s)

    def _fill(self, now_s: float) -> None:
        """Give lanes without work to the policy's choice, and to those whom it names next."""
        if self._first is None and self._line:
            decision = self._decision(self._line, now_s)
            turn = self._turns.get(decision.job)
            if turn is not None:  # it goes on as the policy's choice
                self._record(turn, now_s)
                turn.lane, turn.start_s, turn.first_step, turn.reason = 1, now_s, turn.job.steps_done, decision.reason
                turn.regrant(decision, now_s)
                self._first = turn
            else:
                self._first = self._begin_turn(decision, 1, now_s)
                for other in [one for one in self._turns.values() if one is not self._first]:
                    if not self._may_join(other.job, [self._first.job], self._line.values()):
                        self._end_turn(other, now_s, keeps_place=True)
        while self._first is not None and len(self._turns) < min(self._lanes, len(self._line)):
            first = self._first
            at_work = [first.job, *(turn.job for turn in self._turns.values() if turn is not first)]
            waiting = {
                name: one
                for name, one in self._line.items()
                if name not in self._turns and self._may_join(one, at_work, self._line.values())
            }
            if not waiting:
                break
            taken = {turn.lane for turn in self._turns.values()}
            lane = next(lane for lane in count(2) if lane not in taken)
            self._begin_turn(self._decision(waiting, now_s), lane, now_s)
        for turn in self._turns.values():
            turn.move_to(
                turn.job.job.seconds_per_step * (1.0 if len(self._turns) == 1 else turn.job.job.slowdown), now_s
            )

    def _begin_turn(self, decision: Decision, lane: int, now_s: float) -> "_Turn":
        job = self._line[decision.job]
        job.begun = True
        turn = self._turns[decision.job] = _Turn(job, decision, lane, now_s)
        return turn

    def _decision(self, jobs: Mapping[str, "JobProgress"], now_s: float) -> Decision:
        decision = self._policy.decide(_view(jobs, now_s, self._shares, tuple(self._turns)))
        if decision.job not in jobs:
            in_line = ", ".join(jobs)
            raise ValueError(f"The policy chose '{decision.job}', which is not in line. In line: {in_line}.")
        return decision

    def _end_turn(self, turn: "_Turn", now_s: float, *, keeps_place: bool = False) -> None:
        del self._turns[turn.job.name]
        if turn is self._first:
            self._first = None
        self._record(turn, now_s)
        if not keeps_place:
            turn.job.in_line_since = next(self._ticks)

    def _record(self, turn: "_Turn", now_s: float) -> None:
        """Count a turn, or the part of it in this role."""
        job, steps = turn.job, turn.job.steps_done - turn.first_step
        self.turns.append(SimulatedTurn(job.name, turn.start_s, now_s, steps, turn.reason, turn.lane))
        job.waited_s += turn.start_s - job.line_since_s
        job.charge(self._shares, now_s - turn.start_s)
        job.line_since_s = now_s


class _Turn:
    """A turn that lasts. Seconds are counted from its start or from its last new quantum, so that none are lost."""

    def __init__(self, job: "JobProgress", decision: Decision, lane: int, now_s: float):
        self.job, self.lane, self.start_s, self.first_step = job, lane, now_s, job.steps_done
        self.reason, self.step_s = decision.reason, job.job.seconds_per_step
        self.grant(decision, now_s)

    def grant(self, decision: Decision, now_s: float) -> None:
        """Begin a quantum."""
        self.decision, self.granted_s, self.begun_s, self.begun_step = decision, now_s, now_s, self.job.steps_done
        self.until_step = self.begun_step + self.job.steps_within(decision.quantum)

    def regrant(self, decision: Decision, now_s: float) -> None:
        """Begin a quantum in the middle of a step."""
        self.decision, self.granted_s = decision, now_s
        self.until_step = self.job.steps_done + self.job.steps_within(decision.quantum)
        self._limit()

    def move_to(self, step_s: float, now_s: float) -> None:
        """Let each step take so long from now on."""
        if step_s == self.step_s:
            return
        done = (now_s - self.begun_s) / self.step_s
        whole = math.floor(done + 1e-9)
        self.begun_step, self.begun_s = self.begun_step + whole, now_s - max(0.0, done - whole) * step_s
        self.step_s = step_s
        self._limit()

    def _limit(self) -> None:
        """End a quantum of seconds at the first step boundary after them."""
        if self.decision.quantum.kind == "seconds":
            most = self.job.epochs_steps - self.begun_step
            until_s = self.granted_s + self.decision.quantum.amount
            self.until_step = self.begun_step + _first_step_reaching(until_s, self.begun_s, self.step_s, most)

    @property
    def end_s(self) -> float:
        return self._at(self.until_step)

    def boundary_s(self, now_s: float) -> float:
        """The first step boundary from now on."""
        steps = self.until_step - self.begun_step
        return self._at(self.begun_step + _first_step_reaching(now_s, self.begun_s, self.step_s, steps))

    def steps_at(self, now_s: float) -> int:
        """Steps of its job that are done."""
        passed = (now_s - self.begun_s) / self.step_s
        nearest = round(passed)  # at a step boundary
        # Moments may be UTC seconds, which are exact to a quarter of a microsecond.
        rounding = 1e-6 * max(1, nearest) + 4 * math.ulp(now_s) / self.step_s
        return self.begun_step + (nearest if nearest - passed <= rounding else nearest - 1)

    def _at(self, step: int) -> float:
        return self.begun_s + (step - self.begun_step) * self.step_s


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
    alive = {job.name: JobProgress(job, arrival) for arrival, job in enumerate(jobs)}
    starts_seen: dict[str, int] = {}
    """How many jobs had started at the last turn of each."""
    ticks, shares, now_s = count(len(jobs)), Shares(), 0.0
    found: list[Stage] = []
    while alive:
        decision, _ = decide_or_fall_back(policy, _view(alive, now_s, shares))
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
class JobProgress:
    """A job in line, and how far it is."""

    job: SimulatedJob
    arrival: int
    in_line_since: int = 0
    line_since_s: float = 0.0
    waited_s: float = 0.0
    steps_done: int = field(init=False)
    service_s: float = field(init=False)
    begun: bool = field(init=False)
    """Whether it has trained, or trains now."""

    def __post_init__(self) -> None:
        self.steps_done, self.service_s = self.job.steps_done, self.job.service_s
        self.begun = self.steps_done > 0

    @property
    def epochs_steps(self) -> int:
        """Steps of all its epochs."""
        return self.job.epochs * self.job.steps_per_epoch

    @property
    def steps_left(self) -> int:
        """Steps until it ends."""
        return self.epochs_steps - self.steps_done

    @property
    def name(self) -> str:
        """Name of its job."""
        return self.job.name

    def as_job(self) -> SimulatedJob:
        """The job with its progress."""
        return replace(self.job, steps_done=self.steps_done, service_s=self.service_s)

    def charge(self, shares: Shares, seconds: float) -> None:
        """Count service, also that of its owner."""
        self.service_s += seconds
        shares.charge(self.job.owner, seconds)

    def view(self, now_s: float, owner_service_s: float, *, waits: bool = True) -> JobView:
        """What a policy sees of it."""
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
        """Steps until a quantum that begins now is used up, or it ends."""
        steps = self.steps_left
        if quantum.kind == "epochs":
            last_epoch = self.steps_done // self.job.steps_per_epoch + math.ceil(quantum.amount)
            steps = last_epoch * self.job.steps_per_epoch - self.steps_done
        elif quantum.kind == "steps":
            steps = math.ceil(quantum.amount)
        elif quantum.kind == "seconds":
            steps = _first_step_reaching(quantum.amount, 0.0, self.job.seconds_per_step, steps)
        return min(steps, self.steps_left)


def _view(line: Mapping[str, JobProgress], now_s: float, shares: Shares, at_work: tuple[str, ...] = ()) -> View:
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
