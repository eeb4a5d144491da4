"""Who belongs to a run: the sub-models that have not ended, and those of them that are at work."""

from collections.abc import Iterable, Sequence

from unifiednn_core.base.clock import Clock
from unifiednn_core.engine.job import Job, Turn
from unifiednn_core.engine.meters import StepTimer
from unifiednn_core.engine.resident_data import DataUsers, Lease
from unifiednn_core.scheduling.company import Rates
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
