"""Algorithm 2 of the paper: the visible loop that trains the sub-models of a hybrid, one quantum at a time.

The policy decides, the engine enacts. Orders of people are obeyed, and progress is captured, between two steps. Nothing
in here waits for a database, a disk, a log or a reader of its reports.
"""

import threading
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence

import torch

from unifiednn_core import failpoints
from unifiednn_core.clock import Clock, RealClock
from unifiednn_core.hybrid.unifier import HybridModel
from unifiednn_core.lifecycle import Event, State, next_state
from unifiednn_core.scheduling.base import Decision, Policy
from unifiednn_core.spec import CheckpointSpec
from unifiednn_core.training import device as devices
from unifiednn_core.training.events import Captured, Ended, EpochDone, Granted, Moved, Obeyed, Refused, Released, Report
from unifiednn_core.training.job import Job, Standing, cause_of, remedy_of
from unifiednn_core.training.meters import Period, QuantumMeter
from unifiednn_core.training.orders import AnyOrder, Join, Leave, Order, Reorder, SetEpochs, SetPolicy, SetPriority
from unifiednn_core.training.rng import preserved
from unifiednn_core.training.roster import RUNNABLE, Roster
from unifiednn_core.training.submodel import SubModel


class Engine:
    """Trains a hybrid in the calling thread (`run`) or in one of its own (`start`)."""

    def __init__(
        self,
        hybrid: HybridModel,
        submodels: Sequence[SubModel],
        policy: Policy,
        *,
        device: torch.device,
        threads: int = 1,
        report: Callable[[Report], object] = lambda report: None,
        clock: Clock | None = None,
        standings: Mapping[str, Standing] | None = None,
        checkpoint: CheckpointSpec | None = None,
        elapsed_s: float = 0.0,
        mark: Callable[[str, str], object] = lambda name, doing: None,
    ):
        """`submodels` come in order of arrival; `standings` says where those stand that were trained before,
        `elapsed_s` how long ago their run began. Without `checkpoint` nothing is captured unless somebody asks.
        `mark` is told before each step whose it is, and which.
        """
        self._hybrid, self._policy, self._device, self._threads = hybrid, policy, device, threads
        self._report, self._mark, self._clock = report, mark, clock or RealClock()
        self._started_s = self._clock.monotonic_s() - elapsed_s
        self._roster = Roster(submodels, standings or {}, self.now_s())
        self._orders: deque[AnyOrder] = deque()
        self._woken = threading.Event()
        self._leaving = self._changed = False
        self._steps = 0
        self._period = Period(checkpoint, self._clock)
        self._being_kept: set[str] = set()
        self._at_work: tuple[str, float] | None = None

    def start(self) -> threading.Thread:
        """Run in a background thread."""
        thread = threading.Thread(target=self.run, name="engine", daemon=True)
        thread.start()
        return thread

    def post(self, order: AnyOrder) -> None:
        """Ask for something from any thread; it is done at the next step boundary."""
        self._orders.append(order)
        self._woken.set()

    def kept(self, submodel: str) -> None:
        """Say, from any thread, that the last capture of a sub-model is on disk, and that the next one may come."""
        self._being_kept.discard(submodel)

    def now_s(self) -> float:
        """Seconds since the run began; the clock of all its reports."""
        return self._clock.monotonic_s() - self._started_s

    @property
    def has_orders(self) -> bool:
        """Whether something was asked that has not been obeyed."""
        return bool(self._orders)

    @property
    def at_work(self) -> tuple[str, float] | None:
        """Who takes a step, and for how many seconds already; None between steps. To be asked from other threads."""
        at_work = self._at_work
        return None if at_work is None else (at_work[0], self._clock.monotonic_s() - at_work[1])

    def run(self) -> None:
        """Train until every sub-model has ended, or an order says to leave."""
        devices.use_exact_profile(self._device, self._threads)
        with preserved(self._device):
            while self._turn():
                pass

    # -- the loop

    def _turn(self) -> bool:
        """Obey, decide, train for one quantum; False once every sub-model has ended.

        Nothing of a sub-model outlives its turn in a variable here, so that its memory is free once it has ended.
        """
        self._between_steps(None)
        self._end_finished()
        if self._leaving or not self._roster:
            return False
        if self._roster.runnable:
            self._grant(*self._choose())
        else:
            self._woken.wait()
        return True

    def _end_finished(self) -> None:
        """End those that have nothing left to do: taken up at their last step, or given fewer epochs."""
        for job in self._roster.runnable:
            if job.submodel.finished:
                self._end(job, Event.COMPLETE)

    def _choose(self) -> tuple[Job, Decision]:
        job, decision, refused = self._roster.choose(self._policy, self.now_s())
        if refused:
            self._report(Refused(job.submodel.name, decision.reason))
        return job, decision

    def _grant(self, job: Job, decision: Decision) -> None:
        """Let one sub-model hold the device until its quantum is spent, it is done, or an order ends its turn.

        Where an order changed who could train or what the policy goes by, the policy is asked again in between; one
        that is sent away before its quantum is spent keeps its place in line.
        """
        submodel, start_s, first_step = job.submodel, self.now_s(), job.submodel.steps_done
        if job.state is State.QUEUED:
            job.state = next_state(submodel.name, job.state, Event.BEGIN)
            self._report(Moved(submodel.name, Event.BEGIN))
        devices.reset_peak(self._device)
        self._report(Granted(submodel.name, start_s, decision.reason))
        failure: tuple[str, str] | None = None
        quantum, sent_away, self._changed = decision.quantum, False, False
        try:
            with submodel.world():
                meter = QuantumMeter(quantum, submodel, self._clock)
                while not sent_away:
                    self._step(submodel)
                    if submodel.finished or meter.spent():
                        break
                    self._between_steps(job)
                    if self._leaving or submodel.finished or job.state is not State.RUNNING:
                        break
                    if self._changed:
                        chosen, again = self._choose()
                        sent_away, self._changed = chosen is not job, False
                        if again.quantum != quantum:
                            quantum, meter = again.quantum, QuantumMeter(again.quantum, submodel, self._clock)
            devices.synchronize(self._device)
        except Exception as error:  # whatever one network raises ends that one alone
            traceback.print_exc()
            failure = cause_of(error), remedy_of(error)
        self._at_work = None
        end_s = self.now_s()
        job.service_s += end_s - start_s
        if not self._leaving and not sent_away:
            job.in_line_since = self._roster.next_tick()
        steps, peak_bytes = submodel.steps_done - first_step, devices.peak_allocated_bytes(self._device)
        self._report(Released(submodel.name, start_s, end_s, steps, decision.reason, peak_bytes))
        self._settle(job, failure)

    def _step(self, submodel: SubModel) -> None:
        self._mark(submodel.name, f"step {submodel.steps_done + 1}")
        self._beat(submodel.name)
        self._report(submodel.step())
        self._steps += 1
        if submodel.at_epoch_end:
            self._report(EpochDone(submodel.name, submodel.end_epoch(lambda: self._beat(submodel.name))))
        self._at_work = None

    def _beat(self, name: str) -> None:
        self._at_work = (name, self._clock.monotonic_s())

    def _settle(self, job: Job, failure: tuple[str, str] | None = None) -> None:
        """Do with a sub-model that does not hold the device what its state asks for."""
        if failure is not None:
            self._end(job, Event.FAIL, *failure)
        elif job.submodel.finished:
            self._end(job, Event.COMPLETE)
        elif job.state is State.STOPPING:
            self._end(job, Event.HALT)
        elif job.state is State.PAUSING:
            self._hold(job)

    def _hold(self, job: Job) -> None:
        """Pause a sub-model: keep it, and free the device of it."""
        if self._capture(job):
            job.submodel.park()
            job.state = next_state(job.submodel.name, job.state, Event.HOLD)
            job.pause(self.now_s())
            self._answer(job.pause_id)

    def _end(self, job: Job, event: Event, cause: str | None = None, remedy: str | None = None) -> None:
        """Take a sub-model out of the hybrid, with a host copy of its state alone."""
        name, submodel, checkpoint = job.submodel.name, job.submodel, None
        if event is not Event.FAIL and submodel.steps_done and not job.discarded:
            try:
                checkpoint = submodel.capture()
            except Exception as error:  # a device that broke down takes one sub-model with it, not the engine
                traceback.print_exc()
                event, cause, remedy = Event.FAIL, cause_of(error), remedy_of(error)
        job.state = next_state(name, job.state, event)
        self._roster.remove(name)
        self._hybrid.remove(name)
        self._report(Ended(name, event, checkpoint, submodel.figures, cause, remedy, job.discarded))
        submodel.release()
        devices.free_cached(self._device)

    # -- between two steps

    def _between_steps(self, holding: Job | None) -> None:
        """Obey what was asked, and keep what was learnt; `holding` is in the middle of its turn."""
        self._woken.clear()
        while self._orders and not self._leaving:
            self._obey(self._orders.popleft(), holding)
        if self._period.is_over(self._steps):
            for job in self._roster:
                if job.submodel.name not in self._being_kept:
                    self._capture(job, holding)

    def _capture(self, job: Job, holding: Job | None = None) -> bool:
        """Report the state of a sub-model that has moved on; False, and it has failed, where that cannot be."""
        submodel = job.submodel
        if submodel.steps_done == job.captured_step:
            return True
        try:
            checkpoint = submodel.capture()
        except Exception as error:
            if job is holding:  # its turn ends by this very error
                raise
            traceback.print_exc()
            self._end(job, Event.FAIL, cause_of(error), remedy_of(error))
            return False
        job.captured_step = submodel.steps_done
        self._being_kept.add(submodel.name)
        self._report(Captured(checkpoint))
        return True

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
        for job in self._roster:
            self._capture(job, holding)
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
                job.state = next_state(name, job.state, event)
                job.discarded = job.discarded or event is Event.DISCARD
            case Event.SAVE:
                self._capture(job, holding)
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
            return
        self._roster.join(submodel, self.now_s())
        self._answer(order.id)

    def _answer(self, command_id: int | None, declined: str | None = None) -> None:
        if command_id is not None:
            self._report(Obeyed(command_id, self._steps, declined))
