"""Algorithm 2 of the paper: the visible loop that trains the sub-models of a hybrid, one quantum at a time.

The policy decides, the engine enacts. Orders of people are obeyed between two steps. Nothing in here waits for a
database, a log or a reader of its reports.
"""

import threading
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from unifiednn_core.clock import Clock, RealClock
from unifiednn_core.hybrid.unifier import HybridModel
from unifiednn_core.lifecycle import Event, State, next_state
from unifiednn_core.scheduling.base import Decision, JobView, Policy, Quantum, View
from unifiednn_core.training import device as devices
from unifiednn_core.training.events import Ended, EpochDone, Granted, Moved, Refused, Released, Report
from unifiednn_core.training.rng import preserved
from unifiednn_core.training.submodel import SubModel
from unifiednn_core.weights import host_copy


@dataclass(frozen=True, slots=True)
class Order:
    """Pause, resume or stop of one sub-model, or of the whole run where `submodel` is None."""

    event: Event
    submodel: str | None = None


@dataclass(slots=True)
class Job:
    """A sub-model in the eyes of the engine."""

    submodel: SubModel
    arrival: int
    in_line_since: int
    admitted_s: float
    state: State = State.QUEUED
    service_s: float = 0.0
    paused_s: float = 0.0
    paused_since_s: float | None = None

    def paused_until(self, now_s: float) -> float:
        """Seconds spent in pauses up to now."""
        return self.paused_s + (now_s - self.paused_since_s if self.paused_since_s is not None else 0.0)


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
    ):
        self._hybrid, self._policy, self._device, self._threads = hybrid, policy, device, threads
        self._report, self._clock = report, clock or RealClock()
        self._started_s = self._clock.monotonic_s()
        self._tick = len(submodels)
        self._jobs = {
            submodel.name: Job(submodel, arrival=place, in_line_since=place, admitted_s=self._started_s)
            for place, submodel in enumerate(submodels)
        }
        self._orders: deque[Order] = deque()
        self._woken = threading.Event()
        self._held = False

    def start(self) -> threading.Thread:
        """Run in a background thread."""
        thread = threading.Thread(target=self.run, name="engine", daemon=True)
        thread.start()
        return thread

    def post(self, order: Order) -> None:
        """Ask for something from any thread; it is done at the next step boundary."""
        self._orders.append(order)
        self._woken.set()

    def now_s(self) -> float:
        """Seconds since the engine was made; the clock of all its reports."""
        return self._clock.monotonic_s() - self._started_s

    def run(self) -> None:
        """Train until every sub-model has ended."""
        devices.use_exact_profile(self._device, self._threads)
        with preserved(self._device):
            while self._turn():
                pass

    def _turn(self) -> bool:
        """Obey, decide, train for one quantum; False once every sub-model has ended.

        Nothing of a sub-model outlives its turn in a variable here, so that its memory is free once it has ended.
        """
        self._obey()
        runnable = [job for job in self._jobs.values() if job.state in (State.QUEUED, State.RUNNING)]
        if self._jobs and (self._held or not runnable):
            self._woken.wait()
        elif self._jobs:
            self._grant(*self._choose(runnable))
        return bool(self._jobs)

    def _choose(self, runnable: list[Job]) -> tuple[Job, Decision]:
        """Ask the policy; a decision that cannot be enacted is refused, and the first in line goes instead."""
        view = self._view(runnable)
        decision = self._policy.decide(view)
        if any(job.name == decision.job for job in view.jobs):
            return self._jobs[decision.job], decision
        first = view.jobs[0].name
        message = f"{self._policy.name} named '{decision.job}', which cannot train now; {first} goes instead."
        self._report(Refused(first, message))
        return self._jobs[first], Decision(first, Quantum("epochs", 1), message)

    def _grant(self, job: Job, decision: Decision) -> None:
        """Let one sub-model hold the device until its quantum is spent, it is done, or an order arrives."""
        submodel, start_s, first_step = job.submodel, self.now_s(), job.submodel.steps_done
        if job.state is State.QUEUED:
            self._move(job, Event.BEGIN)
        devices.reset_peak(self._device)
        self._report(Granted(submodel.name, start_s, decision.reason))
        failure: tuple[str, str] | None = None
        try:
            with submodel.world():
                meter = _Meter(decision.quantum, submodel, self._clock)
                while True:
                    self._report(submodel.step())
                    if submodel.at_epoch_end:
                        self._report(EpochDone(submodel.name, submodel.end_epoch()))
                    if submodel.finished or self._orders or meter.spent():
                        break
            devices.synchronize(self._device)
        except Exception as error:  # whatever one network raises ends that one alone
            traceback.print_exc()
            failure = _cause(error), _remedy(error)
        end_s = self.now_s()
        job.service_s += end_s - start_s
        job.in_line_since = self._next_tick()
        steps, peak_bytes = submodel.steps_done - first_step, devices.peak_allocated_bytes(self._device)
        self._report(Released(submodel.name, start_s, end_s, steps, decision.reason, peak_bytes))
        if failure is not None:
            self._end(job, Event.FAIL, *failure)
        elif submodel.finished:
            self._end(job, Event.COMPLETE)

    def _end(self, job: Job, event: Event, cause: str | None = None, remedy: str | None = None) -> None:
        """Take a sub-model out of the hybrid, with a host copy of its weights alone."""
        job.state = next_state(job.submodel.name, job.state, event)
        del self._jobs[job.submodel.name]
        part = self._hybrid.remove(job.submodel.name)
        state_dict = None
        if event is not Event.FAIL and job.submodel.steps_done:
            try:
                state_dict = host_copy(part.state_dict())
            except Exception as error:  # a device that broke down takes one sub-model with it, not the engine
                traceback.print_exc()
                event, cause, remedy = Event.FAIL, _cause(error), _remedy(error)
        self._report(
            Ended(
                job.submodel.name,
                event,
                state_dict,
                tuple(job.submodel.figures),
                paused_s=job.paused_until(self.now_s()),
                cause=cause,
                remedy=remedy,
            )
        )
        job.submodel.release()

    def _obey(self) -> None:
        """Carry out all orders; what no longer applies, because its target has ended, is passed over."""
        self._woken.clear()
        while self._orders:
            order = self._orders.popleft()
            if order.submodel is None:
                self._obey_for_run(order.event)
            elif (job := self._jobs.get(order.submodel)) is not None:
                self._obey_for_one(job, order.event)

    def _obey_for_run(self, event: Event) -> None:
        alive = list(self._jobs.values())
        if event is Event.STOP:
            for job in alive:
                if job.state is not State.STOPPING:
                    self._move(job, Event.STOP)
                self._end(job, Event.HALT)
            return
        if self._held is (event is Event.PAUSE):
            return
        self._held = not self._held
        for job in alive:
            self._stop_or_start_watch(job)
        self._report(Moved(None, Event.HOLD if self._held else Event.BEGIN))

    def _obey_for_one(self, job: Job, event: Event) -> None:
        if event is Event.PAUSE and job.state in (State.QUEUED, State.RUNNING):
            job.state = next_state(job.submodel.name, job.state, Event.PAUSE)
            self._move(job, Event.HOLD)
        elif event is Event.RESUME and job.state is State.PAUSED:
            job.state = next_state(job.submodel.name, job.state, Event.RESUME)
            job.in_line_since = self._next_tick()
        elif event is Event.STOP:
            job.state = next_state(job.submodel.name, job.state, Event.STOP)
            self._end(job, Event.HALT)
            return
        self._stop_or_start_watch(job)

    def _stop_or_start_watch(self, job: Job) -> None:
        """Count the seconds in which a sub-model is paused, alone or with the run."""
        paused, now_s = self._held or job.state is State.PAUSED, self.now_s()
        if paused and job.paused_since_s is None:
            job.paused_since_s = now_s
        elif not paused and job.paused_since_s is not None:
            job.paused_s, job.paused_since_s = job.paused_until(now_s), None

    def _move(self, job: Job, event: Event) -> None:
        job.state = next_state(job.submodel.name, job.state, event)
        self._report(Moved(job.submodel.name, event))

    def _view(self, runnable: list[Job]) -> View:
        now_s = self.now_s()
        return View(tuple(_job_view(job, now_s) for job in runnable), now_s)

    def _next_tick(self) -> int:
        self._tick += 1
        return self._tick


class _Meter:
    """Tells when a quantum is spent."""

    def __init__(self, quantum: Quantum, submodel: SubModel, clock: Clock):
        self._quantum, self._submodel, self._clock = quantum, submodel, clock
        self._epochs, self._steps, self._start_s = submodel.epochs_done, submodel.steps_done, clock.monotonic_s()

    def spent(self) -> bool:
        match self._quantum.kind:
            case "completion":
                return False
            case "epochs":
                return self._submodel.epochs_done - self._epochs >= self._quantum.amount
            case "steps":
                return self._submodel.steps_done - self._steps >= self._quantum.amount
            case "seconds":
                return self._clock.monotonic_s() - self._start_s >= self._quantum.amount


def _job_view(job: Job, now_s: float) -> JobView:
    submodel = job.submodel
    return JobView(
        name=submodel.name,
        arrival=job.arrival,
        in_line_since=job.in_line_since,
        priority=submodel.spec.priority,
        parameters=submodel.part.definition.parameters,
        epochs=submodel.spec.hyperparameters.epochs,
        epochs_done=submodel.epochs_done,
        steps_total=submodel.steps_total,
        steps_done=submodel.steps_done,
        seconds_per_step=job.service_s / submodel.steps_done if submodel.steps_done else None,
        waiting_s=max(0.0, now_s - job.service_s - job.paused_until(now_s)),
    )


def _cause(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else 'no message'}"


def _remedy(error: Exception) -> str:
    if isinstance(error, torch.OutOfMemoryError):
        return "Use a smaller batch size, or train fewer sub-models at once."
    return "The worker's log in the run folder has the whole trace. Correct the model or its data and submit it again."
