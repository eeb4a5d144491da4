"""Who belongs to a run, and who may step beside the policy's choice, by the rules of `scheduling.company`."""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager

from torch import Tensor, nn

from unifiednn_core.base.clock import Clock
from unifiednn_core.engine.job import Job, Turn
from unifiednn_core.engine.meters import StepTimer, TurnMeter
from unifiednn_core.engine.resident_data import DataUsers, Lease
from unifiednn_core.scheduling.company import Fall, Member, MemoryRoom, Rates, climbing, obstacle
from unifiednn_core.spec.lifecycle import State


class Roster:
    """Jobs in order of arrival, the line, and the turns at work. The engine's lock protects it."""

    def __init__(self, clock: Clock, rates: Rates, *, lanes: int):
        self._clock, self._rates, self._lanes = clock, rates, lanes
        self.jobs: dict[str, Job] = {}
        """Jobs that have not ended, by name in order of arrival."""
        self.turns: dict[str, Turn] = {}
        """Turns at work, by sub-model."""
        self.group: frozenset[str] = frozenset()
        """Sub-models whose steps count as taken together."""
        self.holder: str | None = None
        """The policy's choice while it trains; for any thread."""
        self.users = DataUsers()
        self._tick = 0

    def admit_all(self, jobs: Iterable[Job], now_s: float) -> None:
        """Admit the jobs that a run begins with, in order of arrival."""
        for job in jobs:
            self.admit(job)
            job.paused_since_s = now_s if job.state is State.PAUSED else None
        self._tick = max([len(self.jobs), *(job.in_line_since for job in self.jobs.values())])

    def admit(self, job: Job) -> None:
        """Add a job as the last to arrive."""
        job.arrival = 1 + max((other.arrival for other in self.jobs.values()), default=-1)
        job.timer = StepTimer(self._clock, job.name, self._rates, judges=self._lanes > 1)
        self.jobs[job.name] = job
        self.users.add(job.name, job.submodel.leases)

    def used_alone(self, job: Job) -> list[Lease]:
        """Leases of a job on data sets that no other one uses."""
        others = {lease.sha256 for one in self.jobs.values() if one is not job for lease in one.submodel.leases}
        return [lease for lease in job.submodel.leases if lease.sha256 not in others]

    def remove(self, job: Job, unused: Iterable[Lease] = ()) -> None:
        """Remove a job that is not at work; nobody else uses the data sets `unused`."""
        del self.jobs[job.name]
        self.users.forget(unused)
        self._rates.forget(job.name)

    @property
    def runnable(self) -> list[Job]:
        """Jobs that train or wait for it."""
        return [job for job in self.jobs.values() if job.runnable]

    @property
    def waiting(self) -> list[Job]:
        """Runnable jobs that are not at work."""
        return [job for job in self.jobs.values() if job.runnable and job.name not in self.turns]

    @property
    def first(self) -> Turn | None:
        """The turn of the policy's choice."""
        return None if self.holder is None else self.turns[self.holder]

    def enter(self, turn: Turn) -> None:
        """Put a turn to work."""
        self.turns[turn.job.name] = turn
        self.regroup()

    def leave(self, turn: Turn) -> None:
        """End the work of a turn."""
        del self.turns[turn.job.name]
        self.regroup()

    def regroup(self) -> None:
        """Note who is at work together; while one probes its speed alone, the others rest."""
        probing = [name for name, turn in self.turns.items() if turn.probes]
        self.group = frozenset(probing[:1] or self.turns)

    def next_tick(self) -> int:
        """The place at the end of the line."""
        self._tick += 1
        return self._tick

    def reorder(self, names: Sequence[str]) -> None:
        """Set the order of arrival and of the line; sub-models not named go last."""
        ordered = dict.fromkeys([*(name for name in names if name in self.jobs), *self.jobs])
        self.jobs = {name: self.jobs[name] for name in ordered}
        for place, job in enumerate(self.jobs.values()):
            job.arrival, job.in_line_since = place, self.next_tick()


class Peak:
    """The right to climb; one lane has it at a time, for a step or until backward is past the peak."""

    def __init__(self) -> None:
        self._right = threading.Lock()

    @contextmanager
    def climb(self, module: nn.Module, until: str | None) -> Iterator[None]:
        """Surround a step. It waits for the right, and gives it back where the parameter `until` has its gradient.

        With None, or if that parameter gets no gradient, it keeps the right to the end. Bits stay the same.
        """
        mine = threading.Lock()  # for whoever gives the right back first
        hook = None

        def give_back(_: Tensor | None = None) -> None:
            if mine.acquire(blocking=False):
                self._right.release()

        self._right.acquire()
        try:
            if until is not None:
                parameter = module.get_parameter(until)
                hook = parameter.register_post_accumulate_grad_hook(give_back)  # type: ignore[no-untyped-call]
            yield
        finally:
            if hook is not None:
                hook.remove()
            give_back()


class Company:
    """Admits company, makes room for the policy's choice, and parts those whose company does not pay."""

    def __init__(
        self,
        roster: Roster,
        rates: Rates,
        meter: TurnMeter,
        *,
        memory: Callable[[], MemoryRoom],
        alone_until: Mapping[str, int],
    ):
        """`memory` says what the prediction allows now. Sub-models in `alone_until` have no company up to that step."""
        self._roster, self._rates, self._meter = roster, rates, meter
        self._memory, self._alone_until = memory, alone_until
        self._on_host = rates.cpu_tells  # where all weights are in memory from the beginning
        self._peak, self._climbing = Peak(), dict[str, Fall]()

    def admissible(self, jobs: Iterable[Job], now_s: float) -> list[Job]:
        """Those who may step beside those at work."""
        roster, turns = self._roster, list(self._roster.turns.values())
        if any(self.is_suspect(turn.job) or self.is_unmeasured(turn.job) for turn in turns):
            return []  # only its speed alone tells later whether company pays
        at_work, limit_bytes = [self._member(turn.job) for turn in turns], self._limit_bytes
        return [
            job
            for job in jobs
            if not self.is_suspect(job)
            and not self._rates.rests(roster.group | {job.name}, now_s)
            and obstacle(self._member(job), at_work, limit_bytes) is None
        ]

    def reason(self, job: Job) -> str:
        """Why it may, as a sentence for the operator."""
        beside, gain = " and ".join(sorted(self._roster.group)), self._rates.gain(self._roster.group | {job.name})
        told = "" if gain is None else f" Together they make {gain:.1f} times the progress of one alone."
        turns = "" if self._together(job) is None else " Only one of them at a time is at the peak of its step."
        return f"There is room for {job.name} beside {beside}.{turns}{told}"

    def join(self, job: Job) -> bool:
        """Note how a sub-model steps beside those at work; whether from now on one at a time climbs to its peak."""
        self._climbing = self._together(job) or {}
        return bool(self._climbing)

    def part(self) -> None:
        """Note that one at work has left: those who stay have room for all of their peaks."""
        self._climbing = {}

    def climb(self, turn: Turn) -> AbstractContextManager[None] | None:
        """Context manager that keeps the next step's peak apart from other lanes' peaks; None if both fit at once."""
        fall, submodel = self._climbing.get(turn.job.name), turn.job.submodel
        if fall is None:
            return None
        # The first step makes the optimizer's state, and an evaluation follows the last one of an epoch.
        whole = submodel.steps_done == turn.first_step or (submodel.steps_done + 1) % submodel.steps_per_epoch == 0
        return self._peak.climb(submodel.module, None if whole else fall.parameter)

    def make_room(self, job: Job) -> bool:
        """Send away those who cannot stay beside the policy's choice; whether there is room for it already."""
        if not self._roster.turns:
            return True
        room, beside = True, [self._member(job)]
        for turn in sorted(self._roster.turns.values(), key=lambda turn: turn.lane):
            found = obstacle(self._member(turn.job), beside, self._limit_bytes)
            if found is None and not self.is_suspect(job):
                beside.append(self._member(turn.job))
            else:
                turn.leaves, room = found or f"{job.name} trains alone for now.", False
        return room

    def judge(self, turn: Turn, now_s: float) -> None:
        """Part those at work if their company does not pay: the one that came last leaves."""
        roster, first, news = self._roster, self._roster.first, turn.job.timer.tell()
        if len(roster.group) < 2 or first is None or not news:
            return
        newest = max((turn for turn in roster.turns.values() if turn is not first), key=lambda turn: turn.start_s)
        members = self._member(first.job), self._member(newest.job)
        found, delay = self._rates.objection(roster.group, *members), self._rates.delay(roster.group, *members)
        if found is None or not newest.stays:
            return
        newest.leaves = found
        self._rates.rest(roster.group, now_s)
        if delay is not None:  # the next one would delay it, too
            for job in roster.jobs.values():
                if job is not first.job and (job.priority > first.job.priority or members[0].hurries):
                    self._rates.rest(frozenset({first.job.name, job.name}), now_s)

    @property
    def any_suspects(self) -> bool:
        """Whether anybody is suspected of a crash."""
        return any(map(self.is_suspect, self._roster.jobs.values())) if self._alone_until else False

    def is_unmeasured(self, job: Job) -> bool:
        """Whether the speed of a sub-model alone has to be measured; a CPU tells it in company, too."""
        return not self._rates.cpu_tells and job.timer.seconds_per_step is None

    def is_suspect(self, job: Job) -> bool:
        """Whether an earlier worker died near here, and nobody else should be suspected at a second death."""
        return job.submodel.steps_done < self._alone_until.get(job.name, 0)

    def working_bytes(self, job: Job) -> int | None:
        """Gradients and temporary memory of its steps. What was measured replaces the forecast where it is more."""
        forecast = self._memory().working_bytes.get(job.name)
        if job.name in self._roster.turns:  # its measurement may still go on
            return forecast
        measured = self._meter.transient_bytes(job.name, job.submodel.footprint)
        return max((size for size in (forecast, measured) if size is not None), default=None)

    @property
    def _limit_bytes(self) -> int:
        """What the working sets at work may need together."""
        jobs = self._roster.jobs.values()
        footprints = [job.submodel.footprint for job in jobs]
        held_bytes = sum(one.weights_bytes + one.optimizer_bytes for one in footprints if one.placed or self._on_host)
        return self._memory().limit_bytes((job.name for job in jobs), held_bytes)

    def _member(self, job: Job) -> Member:
        working_bytes, footprint = self.working_bytes(job), job.submodel.footprint
        hyper = job.submodel.spec.hyperparameters
        if working_bytes is not None and not footprint.optimizer_bytes:
            working_bytes += self._memory().optimizer_bytes.get(job.name, 0)
        if working_bytes is not None and not (footprint.placed or self._on_host):
            working_bytes += footprint.weights_bytes + footprint.optimizer_bytes
        return Member(
            name=job.name,
            priority=job.priority,
            working_bytes=working_bytes,
            shares_randomness=job.submodel.shares_randomness,
            hurries=job.standing.deadline_s is not None,
            falls=self._memory().falls.get(job.name, ()) if self._on_host and hyper.in_one_part else (),
        )

    def _together(self, job: Job) -> dict[str, Fall] | None:
        """Up to where a sub-model and the one at work climb alone; None if they need not."""
        members = [self._member(one) for one in (job, *(turn.job for turn in self._roster.turns.values()))]
        return climbing(members, self._limit_bytes)
