"""Who is in memory at the same time under a policy: its very own decisions, followed turn by turn. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

from unifiednn_core.scheduling.base import JobView, Policy, Quantum, View
from unifiednn_core.scheduling.simulator import SimulatedJob


@dataclass(frozen=True, slots=True)
class Stage:
    """A stretch in which one sub-model holds the device, and who has not ended meanwhile."""

    holder: str
    started: frozenset[str]
    """Those who have trained and not ended, the holder among them: their weights and optimizers stay on the device."""
    waiting: frozenset[str]
    """Those who have not trained yet."""


def stages(jobs: Sequence[SimulatedJob], policy: Policy) -> tuple[Stage, ...]:
    """Every combination that a run goes through with these jobs, in order of arrival, that could be its largest.

    Once everybody in a round of turns has had one with the same company, the rounds that follow are no larger, so the
    next in line is taken to its end. A turn of some seconds is taken to end no job.
    """
    alive = {job.name: _Standing(job, arrival) for arrival, job in enumerate(jobs)}
    ticks, starts = count(len(jobs)), 0
    found: list[Stage] = []
    while alive:
        decision = policy.decide(View(tuple(standing.view for standing in alive.values()), 0.0))
        chosen = alive.get(decision.job) or next(iter(alive.values()))
        starts += chosen.starts_seen is None
        again, chosen.starts_seen = chosen.starts_seen == starts, starts
        started = frozenset(name for name, standing in alive.items() if standing.starts_seen is not None)
        found.append(Stage(chosen.job.name, started, frozenset(alive) - started))
        chosen.steps_done += chosen.steps_within(decision.quantum)
        chosen.in_line_since = next(ticks)
        if again or chosen.steps_left <= 0:
            del alive[chosen.job.name]
    return tuple(found)


@dataclass(slots=True, eq=False)
class _Standing:
    job: SimulatedJob
    arrival: int
    steps_done: int = 0
    in_line_since: int = 0
    starts_seen: int | None = None
    """How many jobs had started at its last turn."""

    @property
    def steps_total(self) -> int:
        return self.job.epochs * self.job.steps_per_epoch

    @property
    def steps_left(self) -> int:
        return self.steps_total - self.steps_done

    def steps_within(self, quantum: Quantum) -> int:
        match quantum.kind:
            case "completion":
                return self.steps_left
            case "epochs":
                return int(quantum.amount) * self.job.steps_per_epoch
            case "steps":
                return int(quantum.amount)
            case "seconds":
                return 0

    @property
    def view(self) -> JobView:
        return JobView(
            name=self.job.name,
            arrival=self.arrival,
            in_line_since=self.in_line_since,
            priority=self.job.priority,
            parameters=self.job.parameters,
            epochs=self.job.epochs,
            epochs_done=self.steps_done // self.job.steps_per_epoch,
            steps_total=self.steps_total,
            steps_done=self.steps_done,
            seconds_per_step=None if self.starts_seen is None else self.job.seconds_per_step,
            waiting_s=0.0,
        )
