"""One step of a sub-model or of a gang in the lane of the calling thread, with all that surrounds it."""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch

from unifiednn_core.base.clock import Clock
from unifiednn_core.engine import device as devices
from unifiednn_core.engine.cuda_graphs import recorder_for
from unifiednn_core.engine.events import EpochDone, ProcessChanged, Report
from unifiednn_core.engine.gang import Gang
from unifiednn_core.engine.job import Job, Turn
from unifiednn_core.engine.lanes import Lanes
from unifiednn_core.engine.process_state import ProcessState
from unifiednn_core.engine.roster import Roster

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
