"""Turns what the engine reports into rows of the store."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from math import ceil, isfinite

import torch

from unifiednn_core.clock import Clock
from unifiednn_core.errors import IllegalTransition
from unifiednn_core.lifecycle import Event
from unifiednn_core.memory.samplers import MemorySample
from unifiednn_core.store import Store
from unifiednn_core.store.telemetry import Batch
from unifiednn_core.training.events import Ended, EpochDone, Granted, Moved, Refused, Released, Report, Stepped

# A page reads all curves of a run every second; longer trainings store means over several steps.
STEP_ROWS_OF_RUN = 6000
FEWEST_STEP_ROWS = 200


class Recorder:
    """Collects reports into a batch; `flush` writes it. Used by one thread alone."""

    def __init__(self, store: Store, run_id: str, attempt: int, steps: Mapping[str, tuple[int, int]], clock: Clock):
        """`steps` holds, for each sub-model, steps per epoch and in total."""
        self._store, self._run_id, self._attempt, self._clock = store, run_id, attempt, clock
        self._steps_per_epoch = {name: per_epoch for name, (per_epoch, _) in steps.items()}
        rows_each = max(FEWEST_STEP_ROWS, STEP_ROWS_OF_RUN // len(steps))
        self._stride = {name: max(1, ceil(total / rows_each)) for name, (_, total) in steps.items()}
        self._window: dict[str, list[Stepped]] = {name: [] for name in steps}
        self._service_s = dict.fromkeys(steps, 0.0)
        self._peaks: dict[str, int] = {}
        """Most memory seen, by sub-model."""
        self._run_peaks: dict[str, int] = {}
        """Most memory seen, by source."""
        self._holding: Granted | None = None
        self._samples: list[tuple[float, int]] = []
        """Moments and bytes of the samples since the last slice ended."""
        self._batch = Batch()

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
                self._batch.run |= {"now_submodel": report.submodel, "now_reason": report.reason}
            case Released():
                self._slice(report)
            case Refused():
                self.note(report.submodel, "refused", report.message)
            case Ended():
                if self._window[report.submodel]:
                    self._close_window(report.submodel)
                self._columns(report.submodel)["paused_s"] = report.paused_s
                if report.event is Event.FAIL:
                    self.note(report.submodel, "error", f"{report.cause} {report.remedy}")

    def memory(self, at_s: float, samples: list[MemorySample], source: str) -> None:
        """Take in figures of one instant (engine's clock); those of `source` count for the peaks."""
        for sample in samples:
            self._batch.memory.append({"at_s": at_s, "source": sample.source, "size_bytes": sample.size_bytes})
            if sample.source == source:
                self._samples.append((at_s, sample.size_bytes))
                peak = max(self._run_peaks.get(source, 0), sample.size_bytes)
                self._run_peaks[source] = peak
                self._batch.run |= {"memory_source": source, "peak_memory_bytes": peak}

    def note(self, submodel: str | None, kind: str, message: str) -> None:
        """Add a line to the history of the run."""
        self._batch.events.append({"submodel": submodel, "at_s": self._clock.utc_s(), "kind": kind, "message": message})

    def flush(self, write: Callable[[str, Batch], None], now_s: float) -> None:
        """Write the batch at `now_s` (engine's clock); what could not be written is kept for the next time."""
        for name, window in self._window.items():
            if window:
                self._columns(name)["steps_done"] = window[-1].step
        if self._holding is not None:  # a slice that lasts for hours is told while it lasts
            name, start_s = self._holding.submodel, self._holding.start_s
            self._columns(name)["service_s"] = self._service_s[name] + max(0.0, now_s - start_s)
            self._raise_peak(name, start_s, now_s)
        write(self._run_id, self._batch)
        self._batch = Batch()

    def _move(self, report: Moved) -> None:
        try:
            self._store.runs.transition(self._run_id, report.submodel, report.event)
        except IllegalTransition as error:  # a picture that is wrong for a moment costs less than a lost training
            self.note(report.submodel, "defect", str(error))

    def _step(self, report: Stepped) -> None:
        window = self._window[report.submodel]
        window.append(report)
        if report.step % self._stride[report.submodel] == 0:
            self._close_window(report.submodel)

    def _close_window(self, name: str) -> None:
        """Write the mean over the window; the one place that waits for the device, off the training path."""
        window, self._window[name] = self._window[name], []
        last = window[-1].step
        correct = [report.correct for report in window if report.correct is not None]
        labels = sum(report.labels for report in window)
        self._batch.steps.append(
            {
                "submodel": name,
                "attempt": self._attempt,
                "step": last,
                "epoch": last / self._steps_per_epoch[name],
                "loss": torch.stack([report.loss for report in window]).double().mean().item(),
                "accuracy": torch.stack(correct).sum().item() / labels if correct else None,
            }
        )
        self._columns(name)["steps_done"] = last

    def _epoch(self, report: EpochDone) -> None:
        figures = asdict(report.figures)
        self._batch.epochs.append({"submodel": report.submodel, "attempt": self._attempt, **figures})
        if report.figures.train_loss is not None and not isfinite(report.figures.train_loss):
            message = f"The loss of {report.submodel} is {report.figures.train_loss} in epoch {report.figures.epoch}."
            self.note(report.submodel, "warning", f"{message} A smaller learning rate may help.")
        shown = ("train_loss", "train_accuracy", "test_loss", "test_accuracy")
        self._columns(report.submodel).update(
            epochs_done=report.figures.epoch,
            steps_done=report.figures.step,
            **{name: figures[name] for name in shown},
        )

    def _slice(self, report: Released) -> None:
        self._holding = None
        self._batch.run |= {"now_submodel": None, "now_reason": None}
        row = asdict(report)
        peak_bytes = row.pop("peak_bytes")
        self._batch.slices.append(row)
        self._service_s[report.submodel] += report.end_s - report.start_s
        self._columns(report.submodel)["service_s"] = self._service_s[report.submodel]
        self._raise_peak(report.submodel, report.start_s, report.end_s, peak_bytes)
        self._samples = [(at_s, size_bytes) for at_s, size_bytes in self._samples if at_s > report.end_s]

    def _raise_peak(self, submodel: str, start_s: float, end_s: float, allocated_bytes: int | None = None) -> None:
        """Peak of a stretch: what torch allocated where it counts, else the samples that fall into it."""
        sampled = [size_bytes for at_s, size_bytes in self._samples if start_s <= at_s <= end_s]
        seen = sampled if allocated_bytes is None else [allocated_bytes]
        peak = max((*seen, self._peaks.get(submodel, 0)))
        if peak > self._peaks.get(submodel, 0):
            self._peaks[submodel] = peak
            self._columns(submodel)["peak_memory_bytes"] = peak

    def _columns(self, submodel: str) -> dict[str, object]:
        return self._batch.submodels.setdefault(submodel, {})
