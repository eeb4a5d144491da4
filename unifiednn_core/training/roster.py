"""All sub-models of a hybrid that have not ended: who can train, who is next in line, and whom the policy chooses."""

from collections.abc import Iterator, Mapping, Sequence

from unifiednn_core.lifecycle import State
from unifiednn_core.scheduling.base import Decision, Policy, Quantum, View
from unifiednn_core.training.job import Job, Standing, job_view
from unifiednn_core.training.orders import Reorder, SetEpochs, SetPriority
from unifiednn_core.training.submodel import SubModel

RUNNABLE = (State.QUEUED, State.RUNNING)


class Roster:
    """Jobs by name in order of arrival."""

    def __init__(self, submodels: Sequence[SubModel], standings: Mapping[str, Standing], now_s: float):
        self._jobs: dict[str, Job] = {}
        self._tick = len(submodels)
        for place, submodel in enumerate(submodels):
            standing = standings.get(submodel.name) or Standing(in_line_since=place)
            self._jobs[submodel.name] = Job.of(submodel, place, standing, now_s)

    def __bool__(self) -> bool:
        return bool(self._jobs)

    def __iter__(self) -> Iterator[Job]:
        return iter(list(self._jobs.values()))

    def __contains__(self, name: str) -> bool:
        return name in self._jobs

    def get(self, name: str) -> Job | None:
        """Job of a sub-model; None where it has ended or never was."""
        return self._jobs.get(name)

    @property
    def runnable(self) -> list[Job]:
        """Jobs that could train now."""
        return [job for job in self._jobs.values() if job.state in RUNNABLE]

    def choose(self, policy: Policy, now_s: float) -> tuple[Job, Decision, bool]:
        """Ask the policy among the runnable, of whom there must be one.

        A decision that cannot be enacted is refused, which the last value says, and the first in line goes instead.
        """
        runnable = self.runnable
        decision = policy.decide(View(tuple([job_view(job, now_s) for job in runnable]), now_s))
        for job in runnable:
            if job.submodel.name == decision.job:
                return job, decision, False
        first = runnable[0].submodel.name
        message = f"{policy.name} named '{decision.job}', which cannot train now; {first} goes instead."
        return runnable[0], Decision(first, Quantum("epochs", 1), message), True

    def join(self, submodel: SubModel, now_s: float) -> None:
        """Take one more in, at the end of the line."""
        arrival = 1 + max((job.arrival for job in self), default=-1)
        standing = Standing(in_line_since=self.next_tick(), captured_step=submodel.steps_done)
        self._jobs[submodel.name] = Job.of(submodel, arrival, standing, now_s)

    def remove(self, name: str) -> None:
        """Take one out."""
        del self._jobs[name]

    def edit(self, order: Reorder | SetPriority | SetEpochs) -> str | None:
        """Change what the policy goes by; says why where that is not possible any more."""
        if isinstance(order, Reorder):
            self._reorder(order.names)
            return None
        job = self._jobs.get(order.submodel)
        if job is None:
            return f"{order.submodel} has ended"
        if isinstance(order, SetPriority):
            job.priority = order.priority
            return None
        if order.epochs < job.submodel.epochs_begun:
            return f"{order.submodel} is in epoch {job.submodel.epochs_begun} already"
        job.submodel.epochs = order.epochs
        return None

    def _reorder(self, names: Sequence[str]) -> None:
        """Make this the order of arrival and of the line; who is not named goes last."""
        known = [name for name in names if name in self._jobs]
        ordered = [*known, *(name for name in self._jobs if name not in known)]
        self._jobs = {name: self._jobs[name] for name in ordered}
        for place, job in enumerate(self):
            job.arrival, job.in_line_since = place, self.next_tick()

    def next_tick(self) -> int:
        """End of the line."""
        self._tick += 1
        return self._tick
