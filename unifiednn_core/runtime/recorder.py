"""Turns what the engine reports into rows of the store."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from math import ceil

import torch

from unifiednn_core.clock import Clock
from unifiednn_core.errors import IllegalTransition
from unifiednn_core.lifecycle import Event
from unifiednn_core.memory.samplers import NVML_DEVICE, NVML_PROCESS
from unifiednn_core.runtime.gauge import Gauge, Reading
from unifiednn_core.store import Store
from unifiednn_core.store.schema import SubModelRow
from unifiednn_core.store.telemetry import CHECKPOINT, Batch
from unifiednn_core.training.events import (
    Captured,
    Ended,
    EpochDone,
    Granted,
    Moved,
    Obeyed,
    Refused,
    Released,
    Report,
    Stepped,
)

# A page reads all curves of a run every second; longer trainings store means over several steps.
STEP_ROWS_OF_RUN = 6000
FEWEST_STEP_ROWS = 200
LATE_S = 10.0
SEPARATION_S = 10.0


@dataclass(slots=True)
class _Track:
    """What is being gathered of one sub-model."""

    attempt: int
    steps_per_epoch: int
    stride: int
    service_s: float
    cpu_s: float
    memory_key: str
    peak_bytes: int = 0
    transient_bytes: int = 0
    window: list[Stepped] = field(default_factory=list)
    """Steps since the last row."""


class Recorder:
    """Collects reports into a batch; `flush` writes it. Used by one thread alone."""

    def __init__(self, store: Store, run_id: str, clock: Clock):
        self._store, self._run_id, self._clock = store, run_id, clock
        self._tracks: dict[str, _Track] = {}
        self._run_peaks: dict[str, int] = {}
        """Most memory seen, by source."""
        self._holding: Granted | None = None
        self._samples: list[tuple[float, int]] = []
        """Moments and bytes of the last samples: a turn may have ended before them that is not known of yet."""
        self._released_at_s, self._quiet_from_s = 0.0, -1.0
        """When the last turn ended, and from when on what a turn takes is its own."""
        self._source: str | None = None
        """Of the figure that stands for the run."""
        self._shared_bytes = 0
        """What is resident and yet does not count, because other processes share it."""
        self._batch = Batch()
        self.gauge: Gauge | None = None
        """Tells what the whole run has used, with each flush."""

    def admit(self, row: SubModelRow, attempt: int, *, steps_per_epoch: int, peers: int) -> None:
        """Begin to record a sub-model, one of `peers` in the run, whose last figures stand in `row`."""
        rows_each = max(FEWEST_STEP_ROWS, STEP_ROWS_OF_RUN // peers)
        self._tracks[row.name] = _Track(
            attempt=attempt,
            steps_per_epoch=steps_per_epoch,
            stride=max(1, ceil(row.steps_total / rows_each)),
            service_s=row.service_s,
            cpu_s=row.cpu_s or 0.0,
            memory_key=row.memory_key,
            peak_bytes=row.peak_memory_bytes or 0,
        )

    def seen(self, source: str | None, peak_bytes: int | None) -> None:
        """Take over the peak of the run's earlier attempts."""
        if source is not None and peak_bytes is not None:
            self._run_peaks[source] = peak_bytes

    def record(self, report: Report) -> None:
        """Take one report in."""
        match report:
            case Moved():
                self._move(report)
            case Stepped():
                self._step(report)
            case EpochDone():
                self._epoch(report)
            case Granted():
                self._holding = report
                self._batch.run |= {
                    "now_submodel": report.submodel,
                    "now_reason": report.reason,
                    "now_since_s": report.start_s,
                }
            case Released():
                self._slice(report)
            case Refused():
                self.note(report.submodel, "refused", report.message)
            case Ended():
                self._remember(report)
                self.close_window(report.submodel)
                if report.event is Event.FAIL:
                    self.note(report.submodel, "error", f"{report.cause} {report.remedy}")
            case Captured(checkpoint=checkpoint):
                self.close_window(checkpoint.submodel)
                self.note(checkpoint.submodel, CHECKPOINT, f"{checkpoint.submodel} was kept at step {checkpoint.step}.")
            case Obeyed():
                pass

    def memory(self, reading: Reading) -> None:
        """Take in figures of one instant (engine's clock); those of the reading's main source count for the peaks."""
        at_s, source = reading.at_s, reading.source
        for sample in reading.samples:
            self._batch.memory.append({"at_s": at_s, "source": sample.source, "size_bytes": sample.size_bytes})
            if sample.source == source:
                self._samples.append((at_s, sample.size_bytes))
                self._raise_run_peak(source, sample.size_bytes)
        if reading.strata is not None:
            self._batch.strata.append({"at_s": at_s, **reading.strata})
        self._source, self._shared_bytes = source, reading.shared_bytes or 0

    def note(self, submodel: str | None, kind: str, message: str) -> None:
        """Add a line to the history of the run."""
        self._batch.events.append({"submodel": submodel, "at_s": self._clock.utc_s(), "kind": kind, "message": message})

    def flush(self, write: Callable[[str, Batch], None], now_s: float) -> None:
        """Write the batch at `now_s` (engine's clock); what could not be written is kept for the next time."""
        for name, track in self._tracks.items():
            if track.window:
                self._columns(name)["steps_done"] = track.window[-1].step
        if self._holding is not None:  # a slice that lasts for hours is told while it lasts
            name, start_s = self._holding.submodel, self._holding.start_s
            self._columns(name)["service_s"] = self._tracks[name].service_s + max(0.0, now_s - start_s)
            self._raise_peak(name, start_s, now_s)
        self._samples = [(at_s, size_bytes) for at_s, size_bytes in self._samples if at_s > now_s - LATE_S]
        if self.gauge is not None:
            self._batch.run |= self.gauge.columns()
        write(self._run_id, self._batch)
        self._batch = Batch()

    def _move(self, report: Moved) -> None:
        try:
            self._store.runs.transition(self._run_id, report.submodel, report.event)
        except IllegalTransition as error:  # a picture that is wrong for a moment costs less than a lost training
            self.note(report.submodel, "defect", str(error))

    def _step(self, report: Stepped) -> None:
        track = self._tracks[report.submodel]
        track.window.append(report)
        if report.step % track.stride == 0:
            self.close_window(report.submodel)

    def close_window(self, name: str) -> None:
        """Gather the mean over the window in a row; the one place that waits for the device, off the training path."""
        track = self._tracks.get(name)
        if track is None or not track.window:
            return
        window, track.window = track.window, []
        last = window[-1].step
        correct = [report.correct for report in window if report.correct is not None]
        labels = sum(report.labels for report in window)
        self._batch.steps.append(
            {
                "submodel": name,
                "attempt": track.attempt,
                "step": last,
                "steps": len(window),
                "epoch": last / track.steps_per_epoch,
                "loss": torch.stack([report.loss for report in window]).double().mean().item(),
                "accuracy": torch.stack(correct).sum().item() / labels if correct else None,
            }
        )
        self._columns(name)["steps_done"] = last

    def _epoch(self, report: EpochDone) -> None:
        figures = asdict(report.figures)
        self._batch.epochs.append(
            {"submodel": report.submodel, "attempt": self._tracks[report.submodel].attempt, **figures}
        )
        shown = ("train_loss", "train_accuracy", "test_loss", "test_accuracy")
        self._columns(report.submodel).update(
            epochs_done=report.figures.epoch,
            steps_done=report.figures.step,
            **{name: figures[name] for name in shown},
        )

    def _slice(self, report: Released) -> None:
        self._holding = None
        self._batch.run |= {"now_submodel": None, "now_reason": None, "now_since_s": None}
        track = self._tracks[report.submodel]
        row = {name: getattr(report, name) for name in ("submodel", "start_s", "end_s", "steps", "reason")}
        self._batch.slices.append(row | {"attempt": track.attempt})
        track.service_s += report.end_s - report.start_s
        track.cpu_s += report.cost.cpu_s
        if report.start_s > self._quiet_from_s:
            track.transient_bytes = max(track.transient_bytes, report.cost.transient_bytes or 0)
        self._released_at_s = report.end_s
        self._columns(report.submodel).update(service_s=track.service_s, cpu_s=track.cpu_s)
        self._raise_peak(report.submodel, report.start_s, report.end_s, report.cost.peak_bytes)
        self._samples = [(at_s, size_bytes) for at_s, size_bytes in self._samples if at_s > report.end_s]

    def _remember(self, ended: Ended) -> None:
        """Keep what was measured of a sub-model for predictions; a failed one may have missed its peak.

        Others' turns right after this end share the process with its separation, whose memory is not theirs.
        """
        track, self._quiet_from_s = self._tracks.get(ended.submodel), self._released_at_s + SEPARATION_S
        if track is not None and ended.event is not Event.FAIL and self.gauge is not None:
            self._store.measured.remember(track.memory_key, track.transient_bytes, self.gauge.peak_source)

    def _raise_peak(self, submodel: str, start_s: float, end_s: float, peak_bytes: int | None = None) -> None:
        """Peak of a stretch: the samples that fall into it, and what the turn's own meter saw between them."""
        on_gpu = self._source in (NVML_PROCESS, NVML_DEVICE)  # there samples are of all, the meter of this one alone
        sampled = [] if on_gpu else [size for at_s, size in self._samples if start_s <= at_s <= end_s]
        metered = [] if peak_bytes is None else [peak_bytes - self._shared_bytes]
        track = self._tracks[submodel]
        peak = max((*sampled, *metered, track.peak_bytes))
        if peak > track.peak_bytes:
            track.peak_bytes = peak
            self._columns(submodel)["peak_memory_bytes"] = peak
            if self._source is not None:
                self._raise_run_peak(self._source, peak)

    def _raise_run_peak(self, source: str, size_bytes: int) -> None:
        """A run takes at least what any of its sub-models took, also between two samples."""
        peak = self._run_peaks[source] = max(self._run_peaks.get(source, 0), size_bytes)
        self._batch.run |= {"memory_source": source, "peak_memory_bytes": peak}

    def _columns(self, submodel: str) -> dict[str, object]:
        return self._batch.submodels.setdefault(submodel, {})
