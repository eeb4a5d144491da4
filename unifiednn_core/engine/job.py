"""A sub-model in a run: its state, its place in line, and what the policy sees of it."""

import traceback
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from unifiednn_core.base.errors import ContractBroken, DamagedData, Diverged, NotApplicable, OtherKind
from unifiednn_core.engine.meters import StepTimer
from unifiednn_core.engine.submodel import SubModel
from unifiednn_core.scheduling.base import Decision, JobView
from unifiednn_core.spec.lifecycle import State

RUNNABLE = (State.QUEUED, State.RUNNING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Whose a sub-model is, and what it may count on. Seconds are on the clock of the run."""

    owner: str = ""
    tickets: float = 1.0
    submitted_s: float = 0.0
    """Below 0 if the run began later."""
    deadline_s: float | None = None
    """After its submission."""
    joined_s: float = 0.0


@dataclass(slots=True)
class Job:
    """A sub-model that has not ended."""

    submodel: SubModel
    in_line_since: int
    """Tick; among waiting sub-models the lowest goes first."""
    state: State = State.QUEUED
    """Queued or paused when an engine takes over the job."""
    service_s: float = 0.0
    paused_s: float = 0.0
    captured_step: int = 0
    """Step of its newest checkpoint."""
    standing: Standing = Standing()
    name: str = field(init=False)
    arrival: int = field(init=False, default=0)
    priority: int = field(init=False)
    paused_since_s: float | None = field(init=False, default=None)
    pause_id: int | None = field(init=False, default=None)
    """Command that asked for the pause."""
    discarded: bool = field(init=False, default=False)
    leaving: bool = field(init=False, default=False)
    """Whether it leaves the hybrid at the next step boundary, for another one."""
    timer: StepTimer = field(init=False)
    at_work_since_s: float | None = field(init=False, default=None)
    """When its current turn began."""
    changed_settings: set[str] = field(init=False, default_factory=set)
    """Settings of the process that its steps have changed."""

    def __post_init__(self) -> None:
        self.name, self.priority = self.submodel.name, self.submodel.spec.priority

    @property
    def runnable(self) -> bool:
        """Whether it trains or waits for it."""
        return self.state in RUNNABLE and not self.leaving

    def resume(self, now_s: float, in_line_since: int) -> None:
        """End a pause, at the end of the line."""
        self.paused_s, self.paused_since_s = self._paused_until(now_s), None
        self.in_line_since = in_line_since

    def view(self, now_s: float, owner_service_s: float) -> JobView:
        """Return what the policy sees."""
        submodel, standing = self.submodel, self.standing
        return JobView(
            name=submodel.name,
            arrival=self.arrival,
            in_line_since=self.in_line_since,
            priority=self.priority,
            parameters=submodel.parameters,
            epochs=submodel.epochs,
            epochs_done=submodel.epochs_done,
            steps_total=submodel.steps_per_epoch * submodel.epochs,
            steps_done=submodel.steps_done,
            seconds_per_step=self.timer.seconds_per_step,
            waiting_s=max(0.0, now_s - standing.joined_s - self.served_s(now_s) - self._paused_until(now_s)),
            service_s=self.service_s,
            owner=standing.owner,
            tickets=standing.tickets,
            owner_service_s=owner_service_s,
            deadline_s=None if standing.deadline_s is None else standing.submitted_s + standing.deadline_s,
        )

    def served_s(self, now_s: float) -> float:
        """Seconds in lanes, with the current turn."""
        return self.service_s + (0.0 if self.at_work_since_s is None else now_s - self.at_work_since_s)

    def _paused_until(self, now_s: float) -> float:
        return self.paused_s + (0.0 if self.paused_since_s is None else now_s - self.paused_since_s)


@dataclass(slots=True, eq=False)
class Turn:
    """A sub-model at work in a lane."""

    job: Job
    decision: Decision
    lane: int
    """1 for the policy's choice, more for its company."""
    leaves: str | None = None
    """Why it leaves before its quantum is used up, as a sentence or empty; None if it does not."""
    failure: tuple[str, str] | None = None
    """Cause and remedy of an error that ends the sub-model."""
    probes: bool = False
    """Whether it measures its speed alone, while the others rest."""
    start_s: float = field(init=False, default=0.0)
    first_step: int = field(init=False, default=0)
    used_up: Callable[[], bool] = field(init=False)
    """Whether the quantum is used up."""

    @property
    def stays(self) -> bool:
        """Whether it may use its quantum up."""
        return self.leaves is None

    @property
    def ends(self) -> bool:
        """Whether it ends at this step boundary, whatever others do."""
        job = self.job
        return not self.stays or job.submodel.finished or job.state is not State.RUNNING or job.leaving

    def begin(self, now_s: float, used_up: Callable[[], bool]) -> None:
        """Begin in the role that the lane says."""
        self.start_s, self.first_step, self.used_up = now_s, self.job.submodel.steps_done, used_up
        self.job.at_work_since_s = now_s

    def end(self, now_s: float) -> None:
        """End in this role."""
        self.job.service_s, self.job.at_work_since_s = self.job.served_s(now_s), None

    def fail(self, error: Exception) -> None:
        """Let an error of the sub-model end its turn at the next step boundary."""
        traceback.print_exception(error)
        self.leaves, self.failure = "", reasons(error)


def reasons(error: Exception) -> tuple[str, str]:
    """Cause of a failure in one line, and a remedy for the owner of the sub-model."""
    text = (str(error).strip().splitlines() or ["no message"])[0]
    cause = f"{type(error).__name__}: {text}"
    if isinstance(error, Diverged):
        return text, "Retry it with a smaller learning rate; it resumes from its last checkpoint, if there is one."
    if isinstance(error, DamagedData):
        return (
            text,
            "Its results cannot be trusted: train it again from the start; its checkpoints may be wrong, too.",
        )
    if isinstance(error, ContractBroken | OtherKind | NotApplicable):
        return text, error.remedy
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return cause, "Retry it with a larger batch split: the same batches go through in parts that need less memory."
    return cause, "The worker's log in the run folder has the full traceback. Fix the model or its data, or retry it."
