"""Algorithm 2 of the paper: the loop that trains the sub-models of a hybrid, one quantum at a time.

The policy decides, the engine enacts. Between two steps it carries out orders and captures checkpoints. It never waits
for a database, a disk, a log or a reader of its reports.
"""

import contextlib
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import torch

from unifiednn_core.base import failpoints
from unifiednn_core.base.clock import Clock, RealClock
from unifiednn_core.base.errors import DamagedData
from unifiednn_core.engine import device as devices
from unifiednn_core.engine.cuda_graphs import recorder_for
from unifiednn_core.engine.events import (
    Answered,
    Captured,
    DataChanged,
    Ended,
    EpochDone,
    Granted,
    ProcessChanged,
    Refused,
    Released,
    Report,
)
from unifiednn_core.engine.hybrid import HybridModel
from unifiednn_core.engine.job import Job, reasons
from unifiednn_core.engine.meters import CheckpointTimer, StepTimer, TurnMeter, quantum_meter
from unifiednn_core.engine.orders import (
    AnyOrder,
    Join,
    Order,
    Reorder,
    SetDeadline,
    SetEpochs,
    SetPolicy,
    SetPriority,
)
from unifiednn_core.engine.process_state import ProcessState
from unifiednn_core.engine.resident_data import DataUsers, Lease
from unifiednn_core.machine.breakdown import Footprint
from unifiednn_core.scheduling.base import Decision, Policy, View, enactable
from unifiednn_core.scheduling.shares import Shares
from unifiednn_core.spec.lifecycle import Event, State, next_state
from unifiednn_core.spec.run import CheckpointSpec

_RUNNABLE = (State.QUEUED, State.RUNNING)
_UNTRACED = contextlib.nullcontext()


class Engine:
    """Trains a hybrid in the calling thread (`run`) or in its own thread (`start`)."""

    def __init__(
        self,
        hybrid: HybridModel,
        policy: Policy,
        *,
        device: torch.device,
        threads: int = 1,
        report: Callable[[Report], object] = lambda report: None,
        clock: Clock | None = None,
        jobs: Iterable[Job] | None = None,
        checkpoint: CheckpointSpec | None = None,
        first_period: float = 1.0,
        elapsed_s: float = 0.0,
        mark: Callable[[str, str], object] = lambda name, doing: None,
        trace: Callable[[str, int], contextlib.AbstractContextManager[object]] = lambda name, step: _UNTRACED,
        free_on_end: bool = False,
    ):
        """Prepare a run; nothing trains yet.

        `jobs` holds the state of each sub-model, in order of arrival; without it all are new. `elapsed_s` is the time
        since the run began. Without `checkpoint`, only orders capture checkpoints; the first is due after a share
        `first_period` of a period. `mark(name, "step 7")` runs before a step, `mark(name, "evaluation after step 7")`
        before an evaluation; `trace(name, 7)` surrounds both. With `free_on_end` the memory of a sub-model is freed
        when it ends, despite references to it.
        """
        self._hybrid = hybrid
        self._policy, self._shares = policy, Shares()
        self._device = device
        self._threads = threads
        self._report = report
        self._clock = clock or RealClock()
        self._mark, self._trace = mark, trace
        self._free_on_end = free_on_end
        self._started_s = self._clock.monotonic_s() - elapsed_s
        self._jobs: dict[str, Job] = {}
        """Jobs that have not ended, by name in order of arrival."""
        self._users = DataUsers()
        if jobs is None:
            jobs = [Job(submodel, in_line_since=place) for place, submodel in enumerate(hybrid.submodels)]
        for job in jobs:
            self._admit(job)
            job.paused_since_s = self.now_s() if job.state is State.PAUSED else None
        self._tick = max([len(self._jobs), *(job.in_line_since for job in self._jobs.values())])
        self.orders: deque[AnyOrder] = deque()
        """Orders that wait for the next step boundary."""
        self._woken = threading.Event()
        self._leaving = False
        """Whether the loop ends with all sub-models as they are."""
        self._changed = False
        """Whether to ask the policy again although the quantum is not used up."""
        self._memory_to_free = False
        """Whether an ended or paused sub-model left memory in reserve."""
        self._meter = TurnMeter(device)
        self._recorder = recorder_for(device)
        self._steps = 0
        self._checkpoint_timer = CheckpointTimer(checkpoint, self._clock, first_period)
        self._being_written: set[str] = set()
        self.at_work: tuple[str, float] | None = None
        """Sub-model that the device works for, and since when (monotonic clock); for any thread."""
        self.holder: str | None = None
        """Sub-model that holds the device; for any thread."""
        self.device_lost: tuple[str, str, str] | None = None
        """Sub-model whose error made the device unusable for this process, with cause and remedy."""

    def start(self) -> threading.Thread:
        """Run in a background thread."""
        thread = threading.Thread(target=self.run, name="engine", daemon=True)
        thread.start()
        return thread

    def run(self) -> None:
        """Train until every sub-model has ended or an order says to leave; can be called again after that.

        Restores torch's settings and RNGs.
        """
        self._leaving = False
        self._meter.discard_cpu_time()
        with (
            devices.exact_profile(self._device, self._threads),
            devices.preserved(self._device),
            ProcessState(self._device) as self._process,
        ):
            while self._turn():
                pass

    # -- for any thread

    def post(self, order: AnyOrder) -> None:
        """Ask for something; the engine does it at the next step boundary."""
        self.orders.append(order)
        self._woken.set()

    def checkpoint_written(self, submodel: str) -> None:
        """Confirm that the last capture of a sub-model is on disk; the next one may follow."""
        self._being_written.discard(submodel)

    def now_s(self) -> float:
        """Seconds since the run began; the clock of all reports."""
        return self._clock.monotonic_s() - self._started_s

    def footprints(self) -> dict[str, Footprint]:
        """Memory that each sub-model holds now."""
        return {job.name: job.submodel.footprint for job in list(self._jobs.values())}

    def transient_bytes(self, submodel: str) -> int | None:
        """Largest temporary memory of a sub-model in any of its turns; None if unknown."""
        job = self._jobs.get(submodel)
        return None if job is None else self._meter.transient_bytes(submodel, job.submodel.footprint)

    # -- the loop

    def _turn(self) -> bool:
        """Carry out orders, ask the policy, train for one quantum; False once every sub-model has ended.

        No variable here outlives the turn of a sub-model, so that its memory is free once it has ended.
        """
        self._woken.clear()  # before orders are read, so that none is missed
        self._between_steps(None)
        for job in self._runnable:
            if job.submodel.finished:  # resumed at its last step, or given fewer epochs
                self._end(job, Event.COMPLETE)
        if self._memory_to_free:
            self._memory_to_free = False
            with contextlib.suppress(RuntimeError):  # a broken device has nothing to free
                devices.free_cached(self._device)
        if self._leaving or not self._jobs:
            return False
        if self._runnable:
            self._grant(*self._choose())
        else:
            self._woken.wait()
            self._meter.discard_cpu_time()
        return True

    @property
    def _runnable(self) -> list[Job]:
        return [job for job in self._jobs.values() if job.state in _RUNNABLE]

    def _choose(self) -> tuple[Job, Decision]:
        """Ask the policy to choose among the runnable jobs, at least one."""
        now_s, jobs = self.now_s(), self._runnable
        service_s = self._shares.of({job.standing.owner: job.standing.tickets for job in jobs})
        views = [job.view(now_s, service_s.get(job.standing.owner, 0.0)) for job in jobs]
        at_work = () if self.holder is None else (self.holder,)
        decision, refused = enactable(self._policy, View(tuple(views), now_s, at_work))
        if refused:
            self._report(Refused(decision.job, decision.reason))
        return self._jobs[decision.job], decision

    def _grant(self, job: Job, decision: Decision) -> None:
        """Let one sub-model hold the device until its quantum is used up, it is done, or an order ends its turn."""
        submodel, start_s, first_step = job.submodel, self.now_s(), job.submodel.steps_done
        begins = job.state is State.QUEUED
        if begins:
            job.state = next_state(job.name, job.state, Event.BEGIN)
        self._meter.begin(job.name, start_s)
        self.holder = job.name
        self._report(Granted(job.name, start_s, decision.reason, begins))
        failure: tuple[str, str] | None = None
        preempted = False
        try:
            preempted = self._hold_device(job, decision)
        except Exception as error:  # an error of one network ends that one alone
            traceback.print_exc()
            failure = reasons(error)
        self._restore_process(job, seldom=True)
        self.at_work = self.holder = None
        end_s = self.now_s()
        job.service_s += end_s - start_s
        self._shares.charge(job.standing.owner, end_s - start_s)
        if not self._leaving and not preempted:  # a preempted one keeps its place in line
            job.in_line_since = self._next_tick()
        steps, cost = submodel.steps_done - first_step, self._meter.end(submodel.footprint)
        self._report(Released(job.name, start_s, end_s, steps, decision.reason, cost))
        self._settle(job, failure)

    def _hold_device(self, job: Job, decision: Decision) -> bool:
        """Train one sub-model in its turn; returns whether another one preempts it.

        After an order that may change the policy's choice, the policy is asked again.
        """
        submodel, quantum, preempted = job.submodel, decision.quantum, False
        self._changed = False
        self._heartbeat(job.name)
        with submodel.world():
            self._meter.record_baseline(submodel.footprint)
            job.timer.start()
            meter = quantum_meter(quantum, submodel, self._clock)
            while not preempted:
                self._record_step(job)
                self._step(job)
                if submodel.finished or meter():
                    break
                self._between_steps(job)
                if self._leaving or submodel.finished or job.state is not State.RUNNING:
                    break
                if self._changed:
                    chosen, again = self._choose()
                    preempted, self._changed = chosen is not job, False
                    if again.quantum != quantum:
                        quantum, meter = again.quantum, quantum_meter(again.quantum, submodel, self._clock)
        self._heartbeat(job.name)  # the host waits here for all launched work
        devices.synchronize(self._device)
        job.timer.stop()
        return preempted

    def _record_step(self, job: Job) -> None:
        """Record a step of a sub-model as a graph, if that is due. Nothing else computes meanwhile."""
        if self._recorder is None or not job.submodel.may_record(self._recorder):
            return
        with self._watched(job):
            devices.synchronize(self._device)
            job.timer.stop()
            report = job.submodel.record_step(self._recorder)
        job.timer.start()
        if report is not None:
            self._report(report)

    def _step(self, job: Job) -> None:
        """Take a step, evaluate after the last one of an epoch, and leave the process as it was."""
        step = job.submodel.steps_done + 1
        self._mark(job.name, f"step {step}")
        self._heartbeat(job.name)
        try:
            with self._trace(job.name, step):
                self._train(job)
        finally:
            self._restore_process(job, seldom=False)

    def _train(self, job: Job) -> None:
        submodel = job.submodel
        self._report(submodel.step())
        self._steps += 1
        job.timer.count()
        if not job.timer.warm:
            devices.synchronize(self._device)
            job.timer.warm = True
            job.timer.start()
        if submodel.at_epoch_end:
            devices.synchronize(self._device)
            job.timer.stop()
            self._mark(job.name, f"evaluation after step {submodel.steps_done}")
            self._report(EpochDone(job.name, submodel.end_epoch(lambda: self._heartbeat(job.name))))
            job.timer.start()

    def _restore_process(self, job: Job, *, seldom: bool) -> None:
        """Put back settings of the process that a sub-model has changed; each is reported once."""
        if new := [name for name in self._process.restore(seldom=seldom) if name not in job.changed_settings]:
            job.changed_settings.update(new)
            self._report(ProcessChanged(job.name, tuple(new)))

    def _heartbeat(self, name: str) -> None:
        """Tell the watchdog that the device works for a sub-model from now on."""
        self.at_work = (name, self._clock.monotonic_s())

    # -- ends and pauses

    def _settle(self, job: Job, failure: tuple[str, str] | None = None) -> None:
        """End or pause a sub-model that does not hold the device, if its state or a failure says so."""
        if failure is not None:
            with self._watched(job):
                healthy = devices.is_healthy(self._device)
            if healthy:
                self._end(job, Event.FAIL, *failure)
            else:
                self.device_lost, self._leaving = (job.name, *failure), True
        elif job.submodel.finished:
            self._end(job, Event.COMPLETE)
        elif job.state is State.STOPPING:
            self._end(job, Event.HALT)
        elif job.state is State.PAUSING:
            self._pause(job)

    def _pause(self, job: Job) -> None:
        """Capture a sub-model and free the memory that it holds on the device."""
        if not self._capture(job):
            return
        try:
            with self._watched(job):
                job.submodel.park()
            self._memory_to_free = True
        except Exception as error:
            traceback.print_exc()
            self._end(job, Event.FAIL, *reasons(error))
        else:
            job.state = next_state(job.name, job.state, Event.HOLD)
            job.paused_since_s = self.now_s()
            self._answer(job.pause_id)

    def _end(self, job: Job, event: Event, cause: str | None = None, remedy: str | None = None) -> None:
        """Take a sub-model out of the hybrid, and report a host copy of its state."""
        name, submodel, checkpoint = job.name, job.submodel, None
        others = {lease.sha256 for one in self._jobs.values() if one is not job for lease in one.submodel.leases}
        last_used = [lease for lease in submodel.leases if lease.sha256 not in others]
        keeps = event is not Event.FAIL and not job.discarded
        try:
            with self._watched(job):
                self._verify_data(last_used, job)
                checkpoint = submodel.capture() if keeps and submodel.steps_done else None
        except Exception as error:  # it fails alone; the others train on
            traceback.print_exc()
            if keeps:
                event, (cause, remedy) = Event.FAIL, reasons(error)
        job.state = next_state(name, job.state, event)
        del self._jobs[name]
        self._users.forget(last_used)
        self._hybrid.remove(name)
        self._report(Ended(name, event, checkpoint, submodel.figures, cause, remedy, job.discarded))
        submodel.release(empty=self._free_on_end)
        self._memory_to_free = True

    # -- checkpoints

    def _between_steps(self, holder: Job | None) -> None:
        """Carry out orders and take due checkpoints; `holder` is in the middle of its turn."""
        while self.orders and not self._leaving:
            self.at_work = None
            self._carry_out(self.orders.popleft(), holder)
        if self._checkpoint_timer.is_due(self._steps):
            self._capture_all(holder, but=frozenset(self._being_written))

    def _capture_all(self, holder: Job | None, but: frozenset[str] = frozenset()) -> None:
        """Capture all sub-models, the holder of the device last: its error may end its turn."""
        if holder is not None:  # else the first copy would wait for the holder's kernels under another name
            with self._watched(holder):
                devices.synchronize(self._device)
        for job in sorted(self._jobs.values(), key=lambda job: job is holder):
            if job.name not in but:
                self._capture(job, holder)

    def _capture(self, job: Job, holder: Job | None = None) -> bool:
        """Report the state of a sub-model if it has changed; False if that fails, which ends the sub-model."""
        submodel = job.submodel
        if submodel.steps_done == job.captured_step:
            return True
        try:
            with self._watched(job):
                checkpoint = submodel.capture()
        except Exception as error:
            if job is holder:  # this very error ends its turn
                raise
            traceback.print_exc()
            self._end(job, Event.FAIL, *reasons(error))
            return False
        job.captured_step = submodel.steps_done
        self._being_written.add(job.name)
        self._report(Captured(checkpoint))
        return True

    def _verify_data(self, leases: Iterable[Lease], holder: Job | None) -> None:
        """Report each data set that has changed for all that used it, and end those of them that still train.

        Raises `DamagedData` if `holder` is one of them: it ends its turn.
        """
        users = self._users.of_damaged(leases)
        for name, data in users.items():
            self._report(DataChanged(name, data))
        for name, data in users.items():
            if name in self._jobs and self._jobs[name] is not holder:
                self._end(self._jobs[name], Event.FAIL, *reasons(DamagedData(name, data)))
        if holder is not None and holder.name in users:
            raise DamagedData(holder.name, users[holder.name])

    @contextlib.contextmanager
    def _watched(self, job: Job) -> Iterator[None]:
        """Let the watchdog see for which sub-model the host waits for the device."""
        self._heartbeat(job.name)
        try:
            yield
        finally:
            self.at_work = None

    # -- orders

    def _carry_out(self, order: AnyOrder, holder: Job | None) -> None:
        """Carry an order out. The end of a sub-model answers a stop; a pause is answered once the state is captured."""
        self._changed = True
        match order:
            case Order(event=Event.STOP | Event.DISCARD as event, submodel=None):
                for job in list(self._jobs.values()):
                    self._order_one(job, event, None, holder)
            case Order(event=event, submodel=None):
                try:
                    self._capture_all(holder)
                    self._verify_data((lease for job in self._jobs.values() for lease in job.submodel.leases), holder)
                finally:  # an error of the holder ends its turn, but neither the pause nor the answer
                    self._leaving = event is Event.PAUSE
                    self._answer(order.id)
            case Order(event=event, submodel=str(name)):
                if name in self._jobs:  # else its end has answered
                    self._order_one(self._jobs[name], event, order.id, holder)
            case Join():
                self._join(order)
            case SetPolicy(policy=policy):
                failpoints.passing("policy.before_switch")
                self._policy = policy
                failpoints.passing("policy.after_switch")
                self._answer(order.id)
            case Reorder(names=names):
                self._reorder(names)
                self._answer(order.id)
            case SetPriority() | SetEpochs() | SetDeadline():
                self._answer(order.id, declined=self._adjust(order))

    def _order_one(self, job: Job, event: Event, command_id: int | None, holder: Job | None) -> None:
        match event:
            case Event.PAUSE if job.state in _RUNNABLE:
                job.state, job.pause_id = next_state(job.name, job.state, Event.PAUSE), command_id
            case Event.PAUSE if job.state is State.PAUSED:  # asked before a crash, and restored as paused since
                self._answer(command_id)
            case Event.RESUME:
                if job.state is State.PAUSED:
                    job.state = next_state(job.name, job.state, Event.RESUME)
                    job.resume(self.now_s(), self._next_tick())
                self._answer(command_id)
            case Event.STOP | Event.DISCARD:
                if job.state is not State.STOPPING:
                    job.state = next_state(job.name, job.state, event)
                job.discarded = job.discarded or event is Event.DISCARD
            case Event.SAVE:
                try:
                    if self._capture(job, holder):
                        self._verify_data(job.submodel.leases, holder)
                finally:
                    self._answer(command_id)
        if job is not holder and job.state in (State.PAUSING, State.STOPPING):
            self._settle(job)

    def _adjust(self, order: SetPriority | SetEpochs | SetDeadline) -> str | None:
        """Change priority, epochs or deadline of a sub-model; returns the reason if that is no longer possible."""
        job = self._jobs.get(order.submodel)
        if job is None:
            return f"{order.submodel} has ended"
        if isinstance(order, SetPriority):
            job.priority = order.priority
        elif isinstance(order, SetDeadline):
            job.standing = replace(job.standing, deadline_s=order.deadline_s)
        elif order.epochs < job.submodel.epochs_begun:
            return f"{order.submodel} is in epoch {job.submodel.epochs_begun} already"
        else:
            job.submodel.epochs = order.epochs
        return None

    def _reorder(self, names: Sequence[str]) -> None:
        """Set the order of arrival and of the line; sub-models not named go last."""
        ordered = dict.fromkeys([*(name for name in names if name in self._jobs), *self._jobs])
        self._jobs = {name: self._jobs[name] for name in ordered}
        for place, job in enumerate(self._jobs.values()):
            job.arrival, job.in_line_since = place, self._next_tick()

    def _join(self, order: Join) -> None:
        """Merge one more network. It draws from no RNG of the others, and its failure ends it alone."""
        declined = None
        if order.submodel not in self._jobs:  # else it was there when this worker began
            try:
                with devices.preserved(self._device), ProcessState(self._device):
                    submodel = order.prepare()
                standing = replace(order.standing, joined_s=self.now_s())
                tick, steps = self._next_tick(), submodel.steps_done
                self._admit(Job(submodel, in_line_since=tick, captured_step=steps, standing=standing))
            except Exception as error:
                traceback.print_exc()
                cause, remedy = reasons(error)
                self._report(Ended(order.submodel, Event.FAIL, None, (), cause, remedy))
                declined = f"{order.submodel} could not join: {cause}"
        self._answer(order.id, declined)

    def _admit(self, job: Job) -> None:
        job.arrival = 1 + max((other.arrival for other in self._jobs.values()), default=-1)
        job.timer = StepTimer(self._clock)
        self._jobs[job.name] = job
        self._users.add(job.name, job.submodel.leases)

    def _next_tick(self) -> int:
        self._tick += 1
        return self._tick

    def _answer(self, command_id: int | None, declined: str | None = None) -> None:
        if command_id is not None:
            self._report(Answered(command_id, self._steps, declined))
