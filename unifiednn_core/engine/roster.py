"""The sub-models of a hybrid that have not ended: state, place in line, and the choice of the policy."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import torch

from unifiednn_core.base.clock import Clock
from unifiednn_core.base.errors import Diverged
from unifiednn_core.engine.meters import StepTimer
from unifiednn_core.engine.orders import Reorder, SetEpochs, SetPriority
from unifiednn_core.engine.submodel import SubModel
from unifiednn_core.scheduling.base import Decision, JobView, Policy, View, enactable
from unifiednn_core.spec.lifecycle import State

RUNNABLE = (State.QUEUED, State.RUNNING)


@dataclass(slots=True)
class Job:
    """A sub-model and where it stands in the run. The first fields are the state in which an engine takes it up."""

    submodel: SubModel
    in_line_since: int
    """Tick; lower goes first among those that wait."""
    state: State = State.QUEUED
    """Queued or paused, when an engine takes it up."""
    service_s: float = 0.0
    paused_s: float = 0.0
    captured_step: int = 0
    """Step of its newest checkpoint."""
    arrival: int = field(init=False, default=0)
    priority: int = field(init=False)
    paused_since_s: float | None = field(init=False, default=None)
    pause_id: int | None = field(init=False, default=None)
    """Command that asked for the pause."""
    discarded: bool = field(init=False, default=False)
    timer: StepTimer = field(init=False)

    def __post_init__(self) -> None:
        self.priority = self.submodel.spec.priority

    @property
    def name(self) -> str:
        """Name of the sub-model."""
        return self.submodel.name

    def resume(self, now_s: float, in_line_since: int) -> None:
        """End a pause, at the end of the line."""
        self.paused_s, self.paused_since_s = self._paused_until(now_s), None
        self.in_line_since = in_line_since

    def view(self, now_s: float) -> JobView:
        """What the policy sees."""
        submodel = self.submodel
        return JobView(
            name=submodel.name,
            arrival=self.arrival,
            in_line_since=self.in_line_since,
            priority=self.priority,
            parameters=submodel.parameters,
            epochs=submodel.epochs,
            epochs_done=submodel.epochs_done,
            steps_total=submodel.steps_total,
            steps_done=submodel.steps_done,
            seconds_per_step=self.timer.seconds_per_step,
            waiting_s=max(0.0, now_s - self.service_s - self._paused_until(now_s)),
        )

    def _paused_until(self, now_s: float) -> float:
        return self.paused_s + (0.0 if self.paused_since_s is None else now_s - self.paused_since_s)


class Roster:
    """Jobs by name in order of arrival."""

    def __init__(self, jobs: Iterable[Job], clock: Clock, now_s: float):
        """`now_s` is the engine's clock; a job that is paused counts as paused from now on."""
        self._clock = clock
        self._jobs: dict[str, Job] = {}
        for job in jobs:
            self._admit(job)
            job.paused_since_s = now_s if job.state is State.PAUSED else None
        self._tick = max([len(self._jobs), *(job.in_line_since for job in self)])

    def __bool__(self) -> bool:
        return bool(self._jobs)

    def __iter__(self) -> Iterator[Job]:
        return iter(list(self._jobs.values()))

    def __contains__(self, name: str) -> bool:
        return name in self._jobs

    def get(self, name: str) -> Job | None:
        """Job of a sub-model; None for one that has ended or never was here."""
        return self._jobs.get(name)

    @property
    def runnable(self) -> list[Job]:
        """Jobs that could train now."""
        return [job for job in self._jobs.values() if job.state in RUNNABLE]

    def choose(self, policy: Policy, now_s: float) -> tuple[Job, Decision, bool]:
        """Ask the policy to choose among the runnable jobs, at least one; the last value says if it was refused."""
        view = View(tuple([job.view(now_s) for job in self.runnable]), now_s)
        decision, refused = enactable(policy, view)
        return self._jobs[decision.job], decision, refused

    def join(self, submodel: SubModel) -> None:
        """Add a job at the end of the line."""
        self._admit(Job(submodel, in_line_since=self.next_tick(), captured_step=submodel.steps_done))

    def remove(self, name: str) -> None:
        """Take a job out."""
        del self._jobs[name]

    def edit(self, order: Reorder | SetPriority | SetEpochs) -> str | None:
        """Change what the policy decides by; returns why where that is no longer possible."""
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

    def next_tick(self) -> int:
        """End of the line."""
        self._tick += 1
        return self._tick

    def _admit(self, job: Job) -> None:
        job.arrival, job.timer = 1 + max((other.arrival for other in self), default=-1), StepTimer(self._clock)
        self._jobs[job.name] = job

    def _reorder(self, names: Sequence[str]) -> None:
        """Set the order of arrival and of the line; those not named go last."""
        known = [name for name in names if name in self._jobs]
        ordered = [*known, *(name for name in self._jobs if name not in known)]
        self._jobs = {name: self._jobs[name] for name in ordered}
        for place, job in enumerate(self):
            job.arrival, job.in_line_since = place, self.next_tick()


def reasons(error: Exception) -> tuple[str, str]:
    """Cause of a failure in one line, and what the owner of the sub-model can do."""
    text = (str(error).strip().splitlines() or ["no message"])[0]
    cause = f"{type(error).__name__}: {text}"
    if isinstance(error, Diverged):
        return text, "Retry it with a smaller learning rate; it resumes from its last checkpoint, if there is one."
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return cause, "Retry it with a larger batch split: the same batches go through in parts that need less memory."
    return cause, "The worker's log in the run folder has the full traceback. Fix the model or its data, or retry it."
