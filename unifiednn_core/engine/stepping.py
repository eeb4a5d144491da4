"""One step of a sub-model or of a gang in the lane of the calling thread, with all that surrounds it."""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial

import torch

from unifiednn_core.base.clock import Clock
from unifiednn_core.engine import device as devices
from unifiednn_core.engine.company import Roster
from unifiednn_core.engine.events import EpochDone, ProcessChanged, Report
from unifiednn_core.engine.gang import Gang
from unifiednn_core.engine.graphs import recorder_for
from unifiednn_core.engine.job import Job, Turn
from unifiednn_core.engine.process_state import ProcessState


class Lanes:
    """The calling thread of `run`, and up to `count` - 1 more that start once there is work for them."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._lock = threading.Lock()
        self._rest = threading.Condition(self._lock)
        """Notified whenever a lane comes to rest between two steps, or may go on."""
        self._woken: dict[int, threading.Event] = {}
        self._threads: list[threading.Thread] = []
        self._busy = 0
        """Lanes that compute."""
        self._parking = False
        self.computing = _Computing(self)
        """Context that gives the lock back for a step."""
        self.broken: BaseException | None = None
        """Error that ended a lane; the others have to end, too."""

    def run(self, work: Callable[[], bool], inside: Callable[[int], AbstractContextManager[object]]) -> None:
        """Call `work` in each lane until it returns False, in the context `inside(number)`; this thread has number 1.

        Waits for all lanes. Raises the first error of any lane's `work`.
        """
        self.broken, self._work, self._inside = None, work, inside
        self._lane(1)
        for thread in self._threads:
            thread.join()
        self._threads.clear()
        if self.broken is not None:
            raise self.broken

    def open(self, wanted: int) -> None:
        """Start more lanes, so that there are `wanted`, or as many as there may be."""
        while len(self._threads) + 1 < min(wanted, self.count):  # they end all together
            number = len(self._threads) + 2
            thread = threading.Thread(target=self._lane, args=(number,), name=f"lane {number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def wake_others(self) -> None:
        """Let every other lane that waits look for work."""
        if self._threads:
            self.wake()

    def wake(self) -> None:
        """Let every waiting lane look for work. Safe in any thread; takes no lock."""
        for woken in tuple(self._woken.values()):
            woken.set()

    def begin(self) -> None:
        """Begin to look for work: a `wake` from now on ends the next `wait` of this lane."""
        self._woken[threading.get_ident()].clear()

    def wait(self, seconds: float | None = None) -> None:
        """Give the lock back until `wake`, or for so long."""
        self._lock.release()
        try:
            self._woken[threading.get_ident()].wait(seconds)
        finally:
            self._lock.acquire()
            self._stand_still()

    @contextmanager
    def parked(self) -> Iterator[None]:
        """Wait until no other lane computes, and let none begin; can be nested."""
        if self._parking:  # by this lane: any other one stands still
            yield
            return
        self._parking = True
        try:
            while self._busy:
                self._rest.wait()
            yield
        finally:
            self._parking = False
            self._rest.notify_all()

    # -- inside

    def _begin_step(self) -> None:
        self._busy += 1
        self._lock.release()

    def _end_step(self) -> None:
        self._lock.acquire()
        self._busy -= 1
        if self._parking:
            self._rest.notify_all()
            self._stand_still()

    def _stand_still(self) -> None:
        while self._parking:
            self._rest.wait()

    def _lane(self, number: int) -> None:
        own = self._woken[threading.get_ident()] = threading.Event()
        own.set()
        try:
            with self._inside(number), self._lock:
                self._stand_still()
                while self._work():
                    pass
        except BaseException as error:  # a defect of the engine itself; the main lane raises it
            self.broken = self.broken or error
        finally:
            del self._woken[threading.get_ident()]
            self.wake()


class _Computing:
    """A context for all lanes; it has no state, and costs less than a generator."""

    def __init__(self, lanes: Lanes):
        self._begin, self._end = lanes._begin_step, lanes._end_step

    def __enter__(self) -> None:
        self._begin()

    def __exit__(self, *error: object) -> None:
        self._end()


Trace = Callable[[int, str, int], contextlib.AbstractContextManager[object]]
UNTRACED = contextlib.nullcontext()


class Stepper:
    """Takes steps and records them as graphs; tells the watchdog and the crash mark about each."""

    def __init__(
        self,
        roster: Roster,
        lanes: Lanes,
        *,
        device: torch.device,
        threads: int,
        clock: Clock,
        report: Callable[[Report], object],
        mark: Callable[[int, str, str], object],
        trace: Trace,
        fast: bool = False,
    ):
        """`Engine` explains `threads`, `mark` and `trace`."""
        self._roster, self._lanes, self._clock = roster, lanes, clock
        self._device, self._threads, self._fast = device, threads, fast
        self._report, self._mark, self._trace = report, mark, trace
        self.recorder_of_lane = partial(recorder_for, device)
        self._own = threading.local()
        """Of the calling lane: `number`, `recorder`, and `process`, the settings that no step may leave changed."""
        self.at_work: dict[str, float] = {}
        """Sub-models that the device works for, and since when (monotonic clock); for any thread."""
        self.steps = 0
        """Steps of all sub-models."""

    @contextlib.contextmanager
    def lane(self, number: int) -> Iterator[None]:
        """Set up the calling thread as a lane."""
        with (
            devices.own_stream(self._device, number) if number > 1 else contextlib.nullcontext(),
            devices.exact_profile(self._device, self._threads, fast=self._fast),
            ProcessState(self._device) as self._own.process,
        ):
            self._own.number, self._own.recorder = number, self.recorder_of_lane()
            yield

    def step(
        self,
        job: Job,
        climb: contextlib.AbstractContextManager[None] | None = None,
        measuring: contextlib.AbstractContextManager[None] | None = None,
    ) -> None:
        """Take a step, evaluate after the last one of an epoch, and leave the process as it was.

        `climb` surrounds it, and may wait for another lane. With `measuring`, which surrounds it, all others rest.
        """
        number, step = self._own.number, job.submodel.steps_done + 1
        self._mark(number, job.name, f"step {step}")
        self.heartbeat(job.name)
        around = measuring or (self._climbing(job, climb) if climb else UNTRACED)
        with self._lanes.parked() if measuring else self._lanes.computing:
            try:
                with around, self._trace(number, job.name, step):
                    self._compute(job)
            finally:
                self.restore_process(job, seldom=False)
                self.at_work.pop(job.name, None)  # from here on it may wait for other lanes
        self.steps += 1

    @contextlib.contextmanager
    def _climbing(self, job: Job, climb: contextlib.AbstractContextManager[None]) -> Iterator[None]:
        self.at_work.pop(job.name, None)  # while it waits, the device does not work for it
        with climb:
            self.heartbeat(job.name)
            yield

    def step_gang(
        self, gang: Gang, crew: Sequence[Turn], measuring: contextlib.AbstractContextManager[None] | None = None
    ) -> None:
        """Take a step of each member, and evaluate those at the end of an epoch; `measuring` surrounds it."""
        first, number = crew[0].job, self._own.number
        step = first.submodel.steps_done + 1
        self._mark(number, first.name, f"step {step}")
        self.heartbeat(first.name)
        with self._lanes.computing:
            try:
                with measuring or UNTRACED, self._trace(number, first.name, step):
                    self._compute_gang(gang, crew)
            finally:
                self.restore_process(first, seldom=False)
                self.at_work.pop(first.name, None)
        self.steps += len(crew)

    def record_step(self, job: Job) -> None:
        """Record a step of a sub-model as a graph, if that is due. Nothing else computes meanwhile."""
        recorder = self._own.recorder
        if recorder is None or not job.submodel.prepare_recording(recorder):
            return
        with self._lanes.parked(), self.watched(job):
            devices.synchronize(self._device)
            job.timer.stop()
            report = job.submodel.record_step(recorder)
            self.restore_process(job, seldom=False)
        job.timer.start(self._roster.group)
        if report is not None:
            self._report(report)

    def record_gang(self, gang: Gang, first: Job) -> None:
        """Record a step of all members as a graph, if that is due. Nothing else computes meanwhile."""
        recorder = self._own.recorder
        if recorder is not None and gang.prepare_recording(recorder):
            with self._lanes.parked(), self.watched(first):
                devices.synchronize(self._device)
                gang.record_step(recorder)

    def finish(self, job: Job) -> None:
        """Wait for all launched work, which is watched as the sub-model's."""
        if self._device.type == "cuda":
            self.heartbeat(job.name)
            with self._lanes.computing:
                devices.synchronize(self._device)

    def rest(self, job: Job) -> None:
        """Leave the process as it was after a turn, and no trace of what the lane did."""
        self.restore_process(job, seldom=True)
        self._mark(self._own.number, job.name, "")
        self.at_work.pop(job.name, None)

    def restore_process(self, job: Job, *, seldom: bool) -> None:
        """Put back settings of the process that a sub-model has changed; each is reported once."""
        changed = self._own.process.restore(seldom=seldom)
        if new := [name for name in changed if name not in job.changed_settings]:
            job.changed_settings.update(new)
            self._report(ProcessChanged(job.name, tuple(new)))

    def heartbeat(self, name: str) -> None:
        """Tell the watchdog that the device works for a sub-model from now on."""
        self.at_work[name] = self._clock.monotonic_s()

    @contextlib.contextmanager
    def watched(self, job: Job) -> Iterator[None]:
        """Let the watchdog see for which sub-model the host waits for the device."""
        self.heartbeat(job.name)
        try:
            yield
        finally:
            self.at_work.pop(job.name, None)

    # -- without the lock: only what belongs to the sub-models that step

    def _compute(self, job: Job) -> None:
        submodel = job.submodel
        self._report(submodel.step())
        job.timer.count(self._roster.group)
        if not job.timer.warm:
            devices.synchronize(self._device)
            job.timer.warm = True
            job.timer.start(self._roster.group)
        if submodel.at_epoch_end:
            devices.synchronize(self._device)
            job.timer.stop()
            self._evaluate(job)
            job.timer.start(self._roster.group)

    def _compute_gang(self, gang: Gang, crew: Sequence[Turn]) -> None:
        done = gang.step()
        for turn in crew:
            result = done[turn.job.name]
            if isinstance(result, Exception):
                turn.fail(result)
                continue
            self._report(result)
            turn.job.timer.count(frozenset({turn.job.name}))
        ends = [turn for turn in crew if turn.failure is None and turn.job.submodel.at_epoch_end]
        if not ends and all(turn.job.timer.warm for turn in crew):
            return
        devices.synchronize(self._device)
        for turn in crew:
            turn.job.timer.stop()
            turn.job.timer.warm = True
        for turn in ends:
            try:
                self._evaluate(turn.job)
            except Exception as error:
                turn.fail(error)
            self.at_work.pop(turn.job.name, None)
        start_timers(crew)

    def _evaluate(self, job: Job) -> None:
        self._mark(self._own.number, job.name, f"evaluation after step {job.submodel.steps_done}")
        figures = job.submodel.end_epoch(lambda: self.heartbeat(job.name))
        self._report(EpochDone(job.name, figures, job.timer.usual_step_s, job.submodel.doubt))


def start_timers(crew: Sequence[Turn]) -> None:
    """Time the steps of a gang; each member counts its share of them, as if it was alone for so long."""
    for turn in crew:
        turn.job.timer.start(frozenset({turn.job.name}), 1 / len(crew))
