"""Algorithm 2 of the paper: the visible loop that trains the sub-models of a hybrid, one quantum at a time.

The policy decides, the engine enacts. Orders of people are obeyed, and progress is captured, between two steps. Nothing
in here waits for a database, a disk, a log or a reader of its reports.
"""

import contextlib
import threading
import traceback
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence

import torch

from unifiednn_core.clock import Clock, RealClock
from unifiednn_core.hybrid.unifier import HybridModel
from unifiednn_core.lifecycle import Event, State, next_state
from unifiednn_core.memory.strata import Footprint
from unifiednn_core.scheduling.base import Decision, Policy
from unifiednn_core.spec import CheckpointSpec
from unifiednn_core.training import device as devices
from unifiednn_core.training.events import Captured, Ended, EpochDone, Granted, Moved, Refused, Released, Report
from unifiednn_core.training.job import Job, Standing, cause_of, remedy_of
from unifiednn_core.training.meters import Period, QuantumMeter
from unifiednn_core.training.obedience import Obedience
from unifiednn_core.training.orders import AnyOrder
from unifiednn_core.training.rng import preserved
from unifiednn_core.training.roster import Roster
from unifiednn_core.training.submodel import SubModel
from unifiednn_core.training.turn_meter import TurnMeter


class Engine(Obedience):
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
        empties: bool = False,
    ):
        """`submodels` come in order of arrival; `standings` says where those stand that were trained before,
        `elapsed_s` how long ago their run began. Without `checkpoint` nothing is captured unless somebody asks.
        `mark` is told before each step whose it is, and which. With `empties` the memory of an ended sub-model is freed
        at once, even where somebody still holds its module.
        """
        self._hybrid, self._policy, self._device, self._threads = hybrid, policy, device, threads
        self._empties = empties
        self._report, self._mark, self._clock = report, mark, clock or RealClock()
        self._started_s = self._clock.monotonic_s() - elapsed_s
        self._roster = Roster(submodels, standings or {}, self.now_s())
        self._orders: deque[AnyOrder] = deque()
        self._woken = threading.Event()
        self._leaving = self._changed = False
        self._left_something = False
        """Whether memory of a sub-model that ended or is paused waits to be given back."""
        self._meter = TurnMeter(device)
        self._steps = 0
        self._period = Period(checkpoint, self._clock)
        self._being_kept: set[str] = set()
        self._at_work: tuple[str, float] | None = None
        self.holder: str | None = None
        """Sub-model that holds the device; for any thread."""
        self.device_lost: tuple[str, str, str] | None = None
        """Sub-model whose error left the device unusable for this process, its cause and remedy."""

    def start(self) -> threading.Thread:
        """Run in a background thread."""
        thread = threading.Thread(target=self.run, name="engine", daemon=True)
        thread.start()
        return thread

    def stay(self) -> None:
        """Take the decision to leave back, once the thread has ended; it can be started again."""
        self._leaving = False

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
        """Who takes a step, and since when by its own clock; None between steps. To be asked from other threads."""
        return self._at_work

    def footprints(self) -> dict[str, Footprint]:
        """What each sub-model that has not ended keeps in memory now. To be asked from other threads."""
        return {job.submodel.name: job.submodel.footprint for job in self._roster}

    def transient_bytes(self, submodel: str) -> int | None:
        """Most that a sub-model took for a while in any of its turns; None where unknown. From other threads."""
        job = self._roster.get(submodel)
        return None if job is None else self._meter.transient_bytes(submodel, job.submodel.footprint)

    def run(self) -> None:
        """Train until every sub-model has ended, or an order says to leave."""
        devices.use_exact_profile(self._device, self._threads)
        self._meter.pass_over()
        with preserved(self._device):
            while self._turn():
                pass

    # -- the loop

    def _turn(self) -> bool:
        """Obey, decide, train for one quantum; False once every sub-model has ended.

        Nothing of a sub-model outlives its turn in a variable here, so that its memory is free once it has ended.
        """
        self._woken.clear()  # before orders are read, so that none is slept through
        self._between_steps(None)
        self._end_finished()
        if self._left_something:
            self._left_something = False
            with contextlib.suppress(RuntimeError):  # a device that broke down has nothing left to give
                devices.free_cached(self._device)
        if self._leaving or not self._roster:
            return False
        if self._roster.runnable:
            self._grant(*self._choose())
        else:
            self._woken.wait()
            self._meter.pass_over()
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
        self._meter.begin(submodel.name, start_s)
        self.holder = submodel.name
        self._report(Granted(submodel.name, start_s, decision.reason))
        failure: tuple[str, str] | None = None
        quantum, sent_away, self._changed = decision.quantum, False, False
        try:
            with submodel.world():
                self._meter.placed(submodel.footprint)
                spent = QuantumMeter(quantum, submodel, self._clock).spent
                while not sent_away:
                    self._step(submodel)
                    if submodel.finished or spent():
                        break
                    self._between_steps(job)
                    if self._leaving or submodel.finished or job.state is not State.RUNNING:
                        break
                    if self._changed:
                        chosen, again = self._choose()
                        sent_away, self._changed = chosen is not job, False
                        if again.quantum != quantum:
                            quantum, spent = again.quantum, QuantumMeter(again.quantum, submodel, self._clock).spent
            devices.synchronize(self._device)
        except Exception as error:  # whatever one network raises ends that one alone
            traceback.print_exc()
            failure = cause_of(error), remedy_of(error)
        self._at_work = self.holder = None
        end_s = self.now_s()
        job.service_s += end_s - start_s
        job.timed_s += end_s - start_s
        job.timed_steps += submodel.steps_done - first_step
        if not self._leaving and not sent_away:
            job.in_line_since = self._roster.next_tick()
        steps, cost = submodel.steps_done - first_step, self._meter.end(submodel.footprint)
        self._report(Released(submodel.name, start_s, end_s, steps, decision.reason, cost))
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
        if failure is not None and not devices.is_healthy(self._device):
            self.device_lost, self._leaving = (job.submodel.name, *failure), True
        elif failure is not None:
            self._end(job, Event.FAIL, *failure)
        elif job.submodel.finished:
            self._end(job, Event.COMPLETE)
        elif job.state is State.STOPPING:
            self._end(job, Event.HALT)
        elif job.state is State.PAUSING:
            self._hold(job)

    def _hold(self, job: Job) -> None:
        """Pause a sub-model: keep it, and free the device of it."""
        if not self._capture(job):
            return
        try:
            job.submodel.park()
            self._left_something = True
        except Exception as error:
            traceback.print_exc()
            self._end(job, Event.FAIL, cause_of(error), remedy_of(error))
        else:
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
        submodel.release(empty=self._empties)
        self._left_something = True

    # -- between two steps

    def _between_steps(self, holding: Job | None) -> None:
        """Obey what was asked, and keep what was learnt; `holding` is in the middle of its turn."""
        while self._orders and not self._leaving:
            self._obey(self._orders.popleft(), holding)
        if self._period.is_over(self._steps):
            self._capture_all(holding, but=self._being_kept)

    def _capture_all(self, holding: Job | None, but: Collection[str] = ()) -> None:
        """Capture everybody, and last the one at work, whose error may end its turn."""
        for job in sorted(self._roster, key=lambda job: job is holding):
            if job.submodel.name not in but:
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
