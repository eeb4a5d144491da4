"""How orders are obeyed between two steps: the half of the engine that people speak to."""

import traceback
from abc import abstractmethod
from collections.abc import Callable, Collection

import torch

from unifiednn_core import failpoints
from unifiednn_core.lifecycle import Event, State, next_state
from unifiednn_core.scheduling.base import Policy
from unifiednn_core.training.events import Ended, Obeyed, Report
from unifiednn_core.training.job import Job, cause_of, remedy_of
from unifiednn_core.training.orders import AnyOrder, Join, Leave, Order, Reorder, SetEpochs, SetPolicy, SetPriority
from unifiednn_core.training.rng import preserved
from unifiednn_core.training.roster import RUNNABLE, Roster


class Obedience:
    """Carries orders out on the roster. The engine has the loop, and does what takes sub-models off the device."""

    _roster: Roster
    _policy: Policy
    _device: torch.device
    _report: Callable[[Report], object]
    _steps: int
    """Steps of the run that this engine has done."""
    _leaving: bool
    """Whether the loop is to end with everybody as they are."""
    _changed: bool
    """Whether the policy has to be asked again, though somebody's quantum is not spent."""

    @abstractmethod
    def now_s(self) -> float:
        """Seconds since the run began."""

    @abstractmethod
    def _capture(self, job: Job, holding: Job | None = None) -> bool: ...

    @abstractmethod
    def _capture_all(self, holding: Job | None, but: Collection[str] = ()) -> None: ...

    @abstractmethod
    def _settle(self, job: Job, failure: tuple[str, str] | None = None) -> None: ...

    def _obey(self, order: AnyOrder, holding: Job | None) -> None:
        """Carry an order out; a stop is answered by the end itself, a pause once the state is captured."""
        self._changed = True
        match order:
            case Order(event=event, submodel=None):
                self._obey_for_run(event, order.id, holding)
            case Leave():
                self._obey_for_run(Event.PAUSE, order.id, holding)
            case Order(event=event, submodel=str(name)):
                self._obey_for_one(name, event, order.id, holding)
            case Join():
                self._join(order)
            case SetPolicy(policy=policy):
                failpoints.passing("policy.before_switch")
                self._policy = policy
                failpoints.passing("policy.after_switch")
                self._answer(order.id)
            case Reorder() | SetPriority() | SetEpochs():
                self._answer(order.id, declined=self._roster.edit(order))

    def _obey_for_run(self, event: Event, command_id: int | None, holding: Job | None) -> None:
        if event in (Event.STOP, Event.DISCARD):
            for job in self._roster:
                self._obey_for_one(job.submodel.name, event, None, holding)
            return
        try:
            self._capture_all(holding)
        finally:  # the error of the one at work ends its turn, and neither the pause nor the answer
            self._leaving = event is Event.PAUSE
            self._answer(command_id)

    def _obey_for_one(self, name: str, event: Event, command_id: int | None, holding: Job | None) -> None:
        job = self._roster.get(name)
        if job is None:  # its end has answered, or will
            return
        match event:
            case Event.PAUSE if job.state in RUNNABLE:
                job.state, job.pause_id = next_state(name, job.state, Event.PAUSE), command_id
            case Event.PAUSE if job.state is State.PAUSED:  # asked before a death, and kept in this state since
                self._answer(command_id)
            case Event.RESUME:
                if job.state is State.PAUSED:
                    job.state = next_state(name, job.state, Event.RESUME)
                    job.resume(self.now_s(), self._roster.next_tick())
                self._answer(command_id)
            case Event.STOP | Event.DISCARD:
                if job.state is not State.STOPPING:
                    job.state = next_state(name, job.state, event)
                job.discarded = job.discarded or event is Event.DISCARD
            case Event.SAVE:
                try:
                    self._capture(job, holding)
                finally:
                    self._answer(command_id)
        if job is not holding and job.state in (State.PAUSING, State.STOPPING):
            self._settle(job)

    def _join(self, order: Join) -> None:
        """Merge one more network; its making draws from no stream of the others, its failure ends it alone."""
        if order.submodel in self._roster:  # it was there when this worker began
            self._answer(order.id)
            return
        try:
            with preserved(self._device):
                submodel = order.prepare()
        except Exception as error:
            traceback.print_exc()
            self._report(Ended(order.submodel, Event.FAIL, None, (), cause_of(error), remedy_of(error)))
            self._answer(order.id, declined=f"{order.submodel} could not join: {cause_of(error)}")
            return
        self._roster.join(submodel, self.now_s())
        self._answer(order.id)

    def _answer(self, command_id: int | None, declined: str | None = None) -> None:
        if command_id is not None:
            self._report(Obeyed(command_id, self._steps, declined))
