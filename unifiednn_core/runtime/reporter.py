"""Writes the reports of engine, exporter and checkpoint writer to the store, and acts on them."""

import logging
import math
import queue
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from sqlalchemy.exc import OperationalError

from unifiednn_core.base.clock import Clock
from unifiednn_core.base.errors import DamagedData, Fenced, IllegalTransition, SeparationFailed
from unifiednn_core.base.trouble import log_error
from unifiednn_core.engine import events
from unifiednn_core.engine.checkpoint import Checkpoint
from unifiednn_core.engine.engine import Engine
from unifiednn_core.engine.events import (
    Answered,
    Captured,
    DataChanged,
    Ended,
    EpochDone,
    Ganged,
    Granted,
    Left,
    ProcessChanged,
    Released,
    Report,
    Stepped,
    StepsRecorded,
)
from unifiednn_core.engine.job import reasons
from unifiednn_core.engine.progress import NotLearning
from unifiednn_core.engine.separator import Separated, probes_path
from unifiednn_core.machine.gpu import NVML_DEVICE, NVML_PROCESS
from unifiednn_core.machine.host import PROCESS_PSS
from unifiednn_core.runtime.assembly import Workbench
from unifiednn_core.runtime.checkpoint_writer import CheckpointWriter
from unifiednn_core.runtime.exporter import ExportDelayed, Exported, Exporter
from unifiednn_core.runtime.gauge import Reading, WorkerGauge
from unifiednn_core.runtime.remote_store import RemoteStore
from unifiednn_core.spec.lifecycle import Event
from unifiednn_core.spec.run import RunSpec
from unifiednn_core.store import Store
from unifiednn_core.store.commands import Verb
from unifiednn_core.store.events import Code, event_columns
from unifiednn_core.store.hybrids import address
from unifiednn_core.store.schema import HybridRow, SubModelRow
from unifiednn_core.store.telemetry import SHOWN_FIGURES, TelemetryRows, curve_stride

HEARTBEAT_S = 2.0
MOST_WAITING, WAIT_S = 100_000, 0.1  # reports of steps hold tensors
SHARE_OF_TIME, LONGEST_PAUSE_S = 0.1, 5.0  # of writes; one that takes less than 20 ms is no reason to pause
EXPORT_S = 10.0  # after an end, the export takes memory that is not the next turn's

_log = logging.getLogger(__name__)
_Message = Report | Exported | ExportDelayed


@dataclass(slots=True)
class _Track:
    """Figures of one sub-model, gathered from its reports."""

    attempt: int
    turn_from_step: int
    """Steps done before the current or next turn."""
    steps_per_epoch: int
    stride: int
    service_s: float
    cpu_s: float
    memory_key: str
    doubt: Mapping[str, Any] | None
    """What shows that it does not learn, as in its row."""
    peak_bytes: int = 0
    transient_bytes: int = 0
    window: list[Stepped] = field(default_factory=list)
    """Steps since the last row."""
    written_step: int = 0


class Reporter:
    """Turns reports into rows of the store, and acts on them.

    `report` is safe in any thread; everything else belongs to the telemetry thread. A report that the store cannot
    take now stays first in line.
    """

    def __init__(
        self,
        store: Store,
        hybrid: HybridRow,
        bench: Workbench,
        clock: Clock,
        gauge: WorkerGauge | None = None,
        courier: RemoteStore | None = None,
    ):
        """`gauge` gives the CPU and GPU seconds that each write records, `courier` gives files to the server."""
        self._courier = courier
        self._store, self._hybrid_id, self._bench, self._clock, self._gauge = store, hybrid.id, bench, clock, gauge
        self.engine: Engine | None = None
        """The engine that reports here."""
        self._inbox: queue.SimpleQueue[_Message] = queue.SimpleQueue()
        self._unwritten: deque[_Message] = deque()
        self._recorded = False
        """Whether the first in line is in the batch already, but not acted on."""
        self.open: set[str] = set()
        """Sub-models that have not been exported."""
        self.pause: Answered | None = None
        """The engine's answer to the order that pauses the whole run."""
        self._batch = TelemetryRows()
        self._written_at_s = -HEARTBEAT_S
        self._pause_s = 0.0
        self._now_s = 0.0
        self._tracks: dict[str, _Track] = {}
        self._at_work: dict[str, Granted] = {}
        self._released_at_s = 0.0
        self._quiet_from_s = -1.0
        """Time after which no export adds to the memory of a turn."""
        self._source: str | None = hybrid.memory_source
        """Source of the main memory figure."""
        self._peaks = {} if hybrid.memory_source is None else {hybrid.memory_source: hybrid.peak_memory_bytes or 0}
        self._shared_bytes = 0
        """Resident memory that does not count, because other processes share it."""
        self.writer = CheckpointWriter(
            bench.checkpoints,
            self._checkpoint_recorded,
            self._checkpoint_done,
            lambda name, said: self.report(ExportDelayed(name, said)),
        )
        self.exporter = Exporter(
            self._models_of,
            bench.definitions,
            self._spec_of,
            lambda key: store.telemetry.epochs(*self._address(key)),
            self.report,
            self._ships_probes,
            self._keep_model,
            self._facts_of,
        )

    def report(self, message: _Message) -> None:
        """Take a report, in any thread. Steps wait while too many reports do, because the store cannot be written."""
        while isinstance(message, Stepped) and len(self._unwritten) + self._inbox.qsize() > MOST_WAITING:
            time.sleep(WAIT_S)
        self._inbox.put(message)

    def admit(self, key: str, row: SubModelRow, attempt: int, *, from_step: int, peers: int) -> None:
        """Begin to record an attempt on one of `peers` sub-models; `row` has its last figures."""
        self._tracks[key] = _Track(
            attempt,
            from_step,
            steps_per_epoch=row.steps_total // row.epochs,
            stride=curve_stride(row.steps_total, peers),
            service_s=row.service_s,
            cpu_s=row.cpu_s or 0.0,
            memory_key=row.memory_key,
            doubt=row.not_learning,
            peak_bytes=row.peak_memory_bytes or 0,
        )
        self.open.add(key)
        self.exporter.tidy(key)

    @property
    def idle(self) -> bool:
        """Whether every report is written and acted on. Once all are exported, a stalled checkpoint does not count."""
        # The producers first, the inbox last: a producer that ends in between has put its report there by then.
        written = self.writer.idle or (self.writer.stalled and not self.open)
        exported = self.exporter.idle
        return written and exported and not self._unwritten and self._inbox.empty()

    def discard_export(self, submodel: str) -> None:
        """Drop a paused export and its checkpoints."""
        self.writer.drop(submodel)
        self.writer.after(partial(self._discard, submodel, partial(self.exporter.forget, submodel)))

    def write(self, now_s: float, *, at_once: bool = True) -> None:
        """Write all reports and act on them; `now_s` is the engine's clock.

        Without news it only writes a heartbeat every `HEARTBEAT_S`. Raises `OperationalError` if the store cannot be
        written now. What nothing depends on may wait, unless `at_once`: the longer the last write took, the longer, so
        that many workers share one store.
        """
        self._now_s = now_s
        while not self._inbox.empty():
            self._unwritten.append(self._inbox.get())
        while self._unwritten:
            message = self._unwritten[0]
            try:
                if not self._recorded:
                    self._record(message)
            except OperationalError:
                raise
            except Exception as error:
                self._defect(error)
            self._recorded = True
            self._act_on(message)
            self._unwritten.popleft()
            self._recorded = False
        if at_once or self._clock.monotonic_s() - self._written_at_s >= self._pause_s:
            self._flush(heartbeat=True)

    def note(self, submodel: str | None, code: Code, **fields: Any) -> None:
        """Add an event to the history of a sub-model, or of the hybrid."""
        self._batch.events.append(event_columns(self._clock.utc_s(), submodel, code, **fields))

    def memory(self, reading: Reading) -> None:
        """Record the figures of one instant; those of the reading's main source count for the peaks."""
        at_s, source = reading.at_s, reading.source
        for sample in reading.samples:
            self._batch.memory.append({"at_s": at_s, "source": sample.source, "size_bytes": sample.size_bytes})
            if sample.source == source:
                self._raise_whole_peak(source, sample.size_bytes)
        for name, size_bytes in reading.own_bytes.items():
            self._raise_peak(name, size_bytes)
        if reading.breakdown is not None:
            self._batch.strata.append({"at_s": at_s, **reading.breakdown})
        self._source, self._shared_bytes = source, reading.shared_bytes or 0

    # -- acting on reports

    def _act_on(self, message: _Message) -> None:
        match message:
            case Captured(checkpoint=checkpoint):
                self._flush()  # the metrics of a step are in the store before a checkpoint says that it is done
                self.writer.put(checkpoint)
            case DataChanged(submodel=name, data=data):
                run_id, plain = self._address(name)
                self._store.runs.doubt(run_id, plain, *reasons(DamagedData(plain, data)))
            case Left(submodel=name):
                self._flush()
                self.writer.after(partial(self._store.workers.left, self._hybrid_id, name))
                self._bench.definitions.pop(name, None)
                self.writer.after(partial(self.open.discard, name))
            case Ended(discarded=True, submodel=name):
                self._flush()
                self.writer.drop(name)
                self.writer.after(partial(self._discard, name, partial(self.exporter.put, message)))
            case Ended(checkpoint=last):
                self._flush()
                if last is not None:
                    self.writer.put(last)
                self.exporter.put(message)
            case Answered(id=command_id, declined=str(reason)):
                self._store.commands.decline(command_id, reason)
            case Answered():
                self._answer(message)
            case Exported(submodel=name):
                self._exported(message)
                self.open.discard(name)
            case ExportDelayed(paused=True, submodel=name) if not self._store.runs.hold(*self._address(name)):
                self.exporter.retry(name)  # a person is stopping it, so it cannot be paused

    def _answer(self, answer: Answered) -> None:
        """Mark a command as carried out; a pause and a save only once their checkpoints are on disk."""
        command = self._store.commands.find_open(answer.id)
        if command is None:  # its target has ended meanwhile, which answered it
            return
        step = None if command.submodel is None else answer.step  # one for a whole run may be answered by a part
        carry_out = partial(self._store.commands.carry_out, answer.id, step)
        if command.verb == Verb.PAUSE and command.submodel is None:
            self.pause = answer
        elif command.verb in (Verb.PAUSE, Verb.SAVE):
            self.writer.after(carry_out)
        else:
            carry_out()

    def _discard(self, submodel: str, end: partial[None]) -> None:
        """Delete the checkpoints of a sub-model, then report its end."""
        self._bench.checkpoints(submodel).clear()
        if self._courier is not None:
            self._courier.keep(submodel, ())
        self._store.runs.forget_checkpoint(*self._address(submodel))
        end()

    def _exported(self, exported: Exported) -> None:
        """End a sub-model: completed only with a file that was read back and verified."""
        name, separated, cause, model = exported.submodel, exported.separated, exported.cause, None
        if separated is not None:
            model = {
                "artifact": separated.archive.name,
                "artifact_bytes": separated.size_bytes,
                "model_path": f"models/{separated.model_path.name}",
                "state_sha256": separated.state_sha256,
            }
        if exported.discarded:
            cause = "A person discarded it; nothing of it was kept."
        self._store.runs.record_export(
            *self._address(name), exported.event, cause=cause, remedy=exported.remedy, model=model
        )
        self._bench.definitions.pop(name, None)

    def _address(self, key: str) -> tuple[str, str]:
        return address(self._hybrid_id, key)

    def _models_of(self, key: str) -> Path:
        return self._bench.home.run(self._address(key)[0]) / "models"

    def _begin(self, submodel: str) -> None:
        try:
            self._store.runs.transition(*self._address(submodel), Event.BEGIN)
        except IllegalTransition as error:  # a wrong state costs less than the training of all
            self.note(submodel, Code.ILLEGAL_MOVE, text=str(error))

    def _checkpoint_recorded(self, checkpoint: Checkpoint, path: Path) -> None:
        run_id, plain = self._address(checkpoint.submodel)
        size_bytes = path.stat().st_size
        if self._courier is not None:  # the server has its files before its row
            kept = self._bench.checkpoints(checkpoint.submodel).paths()
            self._courier.keep(checkpoint.submodel, [f"checkpoints/{plain}/{one.name}" for one in kept])
        record = self._store.runs.record_checkpoint
        record(run_id, plain, name=path.name, step=checkpoint.step, size_bytes=size_bytes)

    def _keep_model(self, key: str, separated: Separated) -> None:
        """Give the files of a separated model to the server's machine. Raises `SeparationFailed`."""
        if self._courier is None:
            return
        folder, plain = self._models_of(key), self._address(key)[1]
        files = (separated.archive, separated.model_path, probes_path(folder, plain))
        names = [f"models/{file.name}" for file in dict.fromkeys(files) if file.is_file()]
        try:
            self._courier.keep(key, names)
        except OSError as error:
            said = f"The trained model '{plain}' could not be given to the server: {error.strerror or error}."
            raise SeparationFailed(said) from error

    def _checkpoint_done(self, submodel: str) -> None:
        if self.engine is not None:
            self.engine.checkpoint_written(submodel)

    def _spec_of(self, key: str) -> Mapping[str, Any]:
        """Content of `spec.json` in an export: the sub-model's part of the spec, with the original file names."""
        run_id, name = self._address(key)
        run, _ = self._store.runs.get(run_id)
        spec, filenames = RunSpec.model_validate(run.spec), run.environment.get("files", {}).get(name, {})
        document = spec.model_dump(mode="json", exclude_none=True)
        [submodel] = [part for part in document.pop("submodels") if part["name"] == name]
        for holder, key in (
            (submodel, "model"),
            (submodel, "train_data"),
            (submodel, "test_data"),
            (submodel.get("start_from", {}), "file"),
        ):
            if key in holder:
                holder[key] = filenames.get(holder[key], holder[key])
        submodel["hyperparameters"].setdefault("seed", spec.seed)
        return {**document, "threads": run.threads, "submodels": [submodel]}

    def _facts_of(self, key: str) -> Mapping[str, Any]:
        """What the library knows about the training data of a sub-model."""
        run_id, name = self._address(key)
        parts = self._store.runs.get(run_id)[0].spec.get("submodels", ())
        data = next((part.get("train_data", "") for part in parts if part["name"] == name), "")
        return self._store.library.facts(data.removeprefix("sha256:"))

    def _ships_probes(self, key: str) -> bool:
        """Whether samples of its data may leave with the model: not if another person has lent them."""
        run_id, name = self._address(key)
        return not any(row.lenders for row in self._store.runs.get(run_id)[1] if row.name == name)

    # -- from reports to rows

    def _defect(self, error: Exception) -> None:
        """Log and note an error in telemetry, which must not end the training."""
        log_error(_log, "A report could not be written.")
        self.note(None, Code.UNRECORDED, error=type(error).__name__)

    def _record(self, message: _Message) -> None:
        match message:
            case Stepped(submodel=name, step=step):
                track = self._tracks[name]
                track.window.append(message)
                if step % track.stride == 0:
                    self._close_window(name)
            case EpochDone(submodel=name, figures=figures, step_s=step_s):
                columns = asdict(figures)
                self._batch.epochs.append({"submodel": name, "attempt": self._tracks[name].attempt, **columns})
                shown = {key: columns[key] for key in SHOWN_FIGURES}
                self._columns(name).update(epochs_done=figures.epoch, steps_done=figures.step, **shown)
                if step_s is not None:
                    self._columns(name)["step_s"] = step_s
                self._judge(name, columns, message.doubt)
            case Granted(submodel=name, reason=reason, start_s=start_s):
                if message.begins:
                    self._begin(name)
                self._at_work[name] = message
                self._columns(name).update(lane=message.lane, turn_since_s=start_s, turn_reason=reason)
                if message.lane == 1:
                    self._batch.hybrid["now_reason"] = reason
            case Released():
                self._end_turn(message)
            case events.Refused(submodel=name, message=text):
                self.note(name, Code.REFUSED, text=text)
            case Ended(submodel=name):
                self._remember(message)
                self._close_window(name)
                if message.event is Event.FAIL:
                    self.note(name, Code.FAILED, cause=message.cause, remedy=message.remedy or "")
            case DataChanged(submodel=name, data=data):
                self.note(name, Code.DATA_CHANGED, data=data)
            case ProcessChanged(submodel=name, settings=settings):
                self.note(name, Code.PROCESS_CHANGED, settings=list(settings))
            case StepsRecorded(submodel=name, gain=gain, refused=refused):
                self.note(name, Code.RECORDED, gain=None if refused else gain, refused=refused)
            case Ganged(submodel=name, others=others, gain=gain, parted=parted):
                self.note(name, Code.GANGED, others=others, gain=gain, parted=parted)
            case Captured(checkpoint=checkpoint):
                self._close_window(checkpoint.submodel)
                self.note(checkpoint.submodel, Code.CHECKPOINT, step=checkpoint.step)
            case ExportDelayed(submodel=name, message=text):
                self.note(name, Code.WARNED, text=text)

    def _judge(self, name: str, figures: Mapping[str, Any], doubt: NotLearning | None) -> None:
        """Record whether a sub-model learns; an event tells each change."""
        track, figures = self._tracks[name], {key: value for key, value in figures.items() if math.isfinite(value or 0)}
        before, now = (
            track.doubt,
            None if doubt is None else {**figures, **asdict(doubt), "since_s": self._clock.utc_s()},
        )
        if now is not None and before is not None and now["sign"] == before["sign"]:
            now["since_s"] = before["since_s"]  # it is as old as its first epoch
        elif now is not before:
            self.note(name, Code.NOT_LEARNING, **(now or {"over": True, **figures}))
        self._columns(name)["not_learning"] = track.doubt = now

    def _close_window(self, name: str) -> None:
        """Write the mean over the window as a row. Only here does the telemetry thread wait for the device."""
        track = self._tracks.get(name)
        if track is None or not track.window:
            return
        window, track.window = track.window, []
        if window[-1].ready is not None:  # the end of a turn has waited for those before it
            window[-1].ready.synchronize()
        last = window[-1].step
        correct = [report.correct for report in window if report.correct is not None]
        labels = sum(report.labels for report in window)
        row = {"submodel": name, "attempt": track.attempt, "step": last, "steps": len(window)}
        self._batch.steps.append(
            row
            | {
                "epoch": last / track.steps_per_epoch,
                "loss": torch.stack([report.loss for report in window]).double().mean().item(),
                "accuracy": torch.stack(correct).sum().item() / labels if correct else None,
            }
        )
        self._columns(name)["steps_done"] = track.written_step = last

    def _end_turn(self, report: Released) -> None:
        self._at_work.pop(report.submodel, None)
        self._columns(report.submodel).update(lane=None, turn_since_s=None, turn_reason=None)
        if report.lane == 1:
            self._batch.hybrid["now_reason"] = None
        track = self._tracks[report.submodel]
        row = {name: getattr(report, name) for name in ("submodel", "start_s", "end_s", "steps", "reason", "lane")}
        self._batch.slices.append(row | {"attempt": track.attempt, "from_step": track.turn_from_step})
        track.turn_from_step += report.steps
        track.service_s += report.end_s - report.start_s
        track.cpu_s += report.cost.cpu_s
        if report.start_s > self._quiet_from_s:
            track.transient_bytes = max(track.transient_bytes, report.cost.transient_bytes or 0)
        self._released_at_s = report.end_s
        self._columns(report.submodel).update(service_s=track.service_s, cpu_s=track.cpu_s)
        if report.step_s is not None:
            self._columns(report.submodel)["step_s"] = report.step_s
        self._raise_peak(report.submodel, report.cost.own_bytes)
        if report.cost.peak_bytes is not None and self._source is not None and not self._on_gpu:  # between two samples
            self._raise_whole_peak(self._source, report.cost.peak_bytes - self._shared_bytes)

    def _remember(self, ended: Ended) -> None:
        """Store the measured memory of a sub-model for predictions. A failed one may not have reached its peak."""
        track, self._quiet_from_s = self._tracks.get(ended.submodel), self._released_at_s + EXPORT_S
        if track is not None and ended.event is not Event.FAIL and self._gauge is not None:
            self._store.measured.remember(track.memory_key, track.transient_bytes)

    @property
    def _on_gpu(self) -> bool:
        """Whether the main figure is NVML's, which counts more than torch does."""
        return self._source in (NVML_PROCESS, NVML_DEVICE)

    def _raise_peak(self, submodel: str, own_bytes: int | None) -> None:
        """Update the peak of a sub-model's own memory."""
        track = self._tracks.get(submodel)
        if track is not None and own_bytes is not None and own_bytes > track.peak_bytes:
            track.peak_bytes = self._columns(submodel)["peak_memory_bytes"] = own_bytes

    def _raise_whole_peak(self, source: str, size_bytes: int) -> None:
        """Update the peak of the hybrid."""
        if source == self._source and size_bytes <= self._peaks.get(source, -1):
            return
        peak = self._peaks[source] = max(self._peaks.get(source, 0), size_bytes)
        self._batch.hybrid |= {"memory_source": source, "peak_memory_bytes": peak}

    def host_peak_bytes(self) -> int | None:
        """Peak of the process on the host; None if memory is that of a GPU."""
        return self._peaks.get(PROCESS_PSS)

    def _columns(self, submodel: str) -> dict[str, Any]:
        return self._batch.submodels.setdefault(submodel, {})

    # -- writing

    def _flush(self, *, heartbeat: bool = False) -> None:
        """Write the batch if it has news, or if a heartbeat is due. Memory samples alone wait for the heartbeat."""
        since_s = self._clock.monotonic_s() - self._written_at_s
        if not (self._has_news or (heartbeat and since_s >= HEARTBEAT_S)):
            return
        for name, track in self._tracks.items():
            if track.window:
                self._columns(name)["steps_done"] = track.written_step = track.window[-1].step
        for name, start_s in [(turn.submodel, turn.start_s) for turn in self._at_work.values()]:  # may last for hours
            self._columns(name)["service_s"] = self._tracks[name].service_s + max(0.0, self._now_s - start_s)
        if self._gauge is not None:
            self._batch.hybrid |= self._gauge.columns()
        begun_s = self._clock.monotonic_s()
        try:
            self._store.telemetry.write(self._hybrid_id, self._batch)
            self._batch, self._written_at_s = TelemetryRows(), self._clock.monotonic_s()
            self._pause_s = min(LONGEST_PAUSE_S, (self._written_at_s - begun_s) / SHARE_OF_TIME)
        except (OperationalError, OSError, Fenced):  # kept for the next time
            raise
        except Exception as error:  # a row that the store refuses must not hold up all others
            self._batch = TelemetryRows()
            self._defect(error)

    @property
    def _has_news(self) -> bool:
        batch = self._batch
        rows = batch.steps or batch.epochs or batch.slices or batch.events or batch.submodels or batch.hybrid
        return bool(rows) or any(t.window and t.window[-1].step != t.written_step for t in self._tracks.values())
