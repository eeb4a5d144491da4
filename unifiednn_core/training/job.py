"""A sub-model in the eyes of the engine: its state, its place in line, and how it is shown to the policy."""

from dataclasses import dataclass

import torch

from unifiednn_core.errors import Diverged
from unifiednn_core.lifecycle import State
from unifiednn_core.scheduling.base import JobView
from unifiednn_core.training.submodel import SubModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where a sub-model stands when an engine takes it up."""

    in_line_since: int
    """Lower goes first among those who wait."""
    state: State = State.QUEUED
    """Queued or paused."""
    service_s: float = 0.0
    paused_s: float = 0.0
    captured_step: int = 0
    """Step of its newest checkpoint."""


@dataclass(slots=True)
class Job:
    """A sub-model in the hands of the engine."""

    submodel: SubModel
    arrival: int
    in_line_since: int
    priority: int
    state: State
    service_s: float
    paused_s: float
    captured_step: int
    timed_s: float = 0.0
    timed_steps: int = 0
    """Turns of this engine, which the time of a step is measured by."""
    paused_since_s: float | None = None
    pause_id: int | None = None
    """Command that asked for the pause."""
    discarded: bool = False

    @classmethod
    def of(cls, submodel: SubModel, arrival: int, standing: Standing, now_s: float) -> "Job":
        """Take a sub-model up at `now_s` (engine's clock)."""
        return cls(
            submodel=submodel,
            arrival=arrival,
            in_line_since=standing.in_line_since,
            priority=submodel.spec.priority,
            state=standing.state,
            service_s=standing.service_s,
            paused_s=standing.paused_s,
            captured_step=standing.captured_step,
            paused_since_s=now_s if standing.state is State.PAUSED else None,
        )

    def pause(self, now_s: float) -> None:
        """Begin to count a pause."""
        self.paused_since_s = now_s

    def resume(self, now_s: float, in_line_since: int) -> None:
        """End a pause, at the end of the line."""
        self.paused_s, self.paused_since_s = self.paused_until(now_s), None
        self.in_line_since = in_line_since

    def paused_until(self, now_s: float) -> float:
        """Seconds spent in pauses up to now."""
        return self.paused_s + (now_s - self.paused_since_s if self.paused_since_s is not None else 0.0)


def job_view(job: Job, now_s: float) -> JobView:
    """What the policy sees of a job."""
    submodel = job.submodel
    paused_s = job.paused_s if job.paused_since_s is None else job.paused_until(now_s)
    return JobView(
        name=submodel.name,
        arrival=job.arrival,
        in_line_since=job.in_line_since,
        priority=job.priority,
        parameters=submodel.part.definition.parameters,
        epochs=submodel.epochs,
        epochs_done=submodel.epochs_done,
        steps_total=submodel.steps_total,
        steps_done=submodel.steps_done,
        seconds_per_step=job.timed_s / job.timed_steps if job.timed_steps else None,
        waiting_s=max(0.0, now_s - job.service_s - paused_s),
    )


def cause_of(error: Exception) -> str:
    """What went wrong with a sub-model, in one line."""
    text = (str(error).strip().splitlines() or ["no message"])[0]
    return text if isinstance(error, Diverged) else f"{type(error).__name__}: {text}"


def remedy_of(error: Exception) -> str:
    """What a person can do about it."""
    if isinstance(error, Diverged):
        return (
            "Retry it with a smaller learning rate; it goes on from the last checkpoint before that, if there is one."
        )
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return "Retry it with a larger batch split: the same batches go through in parts that need less memory."
    return "The worker's log in the run folder has the whole trace. Correct the model or its data, or retry it."
