"""Runs the scripts of one baseline and records them in the store."""

import copy
import queue
import signal
import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from unifiednn_core.base.clock import Clock
from unifiednn_core.base.errors import IllegalTransition
from unifiednn_core.compare.arms import BaselineFiles
from unifiednn_core.compare.gauge import ScriptGauge
from unifiednn_core.compare.processes import Message, ScriptEnd, ScriptProcess, ScriptRow, cause_of, last_line
from unifiednn_core.machine.gpu import GpuSampler
from unifiednn_core.machine.host import LoadMeter, SamplingBudget
from unifiednn_core.spec.lifecycle import Event
from unifiednn_core.store import Store
from unifiednn_core.store.events import Code, event_columns
from unifiednn_core.store.schema import RunRow
from unifiednn_core.store.telemetry import SHOWN_FIGURES, Columns, TelemetryRows

STARTING = "The process starts: imports, network and data."
PATIENCE_S = 5.0  # from asking a script to end to killing it


class BaselineWriter:
    """Writes a baseline to the store in order, and retries a failed write before the next one. For one thread."""

    def __init__(self, store: Store, run_id: str, clock: Clock):
        self._store, self._run_id, self._clock = store, run_id, clock
        self._queue: deque[Callable[[], object]] = deque()
        self.batch = TelemetryRows()  # rows since the last queued action; written before the next one

    @property
    def written(self) -> bool:
        """Whether everything is written."""
        return not self._queue and self.batch == TelemetryRows()

    def columns(self, submodel: str) -> Columns:
        """Changed columns of a sub-model."""
        return self.batch.submodels.setdefault(submodel, {})

    def note(self, submodel: str | None, code: Code, **fields: Any) -> None:
        """Add an event to the history of the run."""
        self.batch.events.append(event_columns(self._clock.utc_s(), submodel, code, **fields))

    def move(self, submodel: str | None, event: Event, cause: str | None = None, remedy: str | None = None) -> None:
        """Move the run or a sub-model along the transition table, after everything queued before."""
        self.queue(partial(self._move, submodel, event, cause, remedy))

    def queue(self, action: Callable[[], object]) -> None:
        """Queue one transaction after everything queued before."""
        if self.batch != TelemetryRows():
            self._queue.append(partial(self._store.telemetry.write, self._run_id, self.batch))
            self.batch = TelemetryRows()
        self._queue.append(action)

    def flush(self) -> None:
        """Write everything and the heartbeat. Raises `OperationalError` if the store cannot be written now."""
        while self._queue:
            self._queue[0]()
            self._queue.popleft()
        self._store.telemetry.write(self._run_id, self.batch)
        self.batch = TelemetryRows()

    def _move(self, submodel: str | None, event: Event, cause: str | None, remedy: str | None) -> None:
        try:
            self._store.runs.transition(self._run_id, submodel, event, cause=cause, remedy=remedy)
        except IllegalTransition as error:  # a wrong state is better than a lost measurement
            self.note(submodel, Code.ILLEGAL_MOVE, text=str(error))


@dataclass(slots=True)
class _Track:
    """One script."""

    name: str
    attempt: int
    reason: str = ""
    process: ScriptProcess | None = None
    over: bool = False
    start_s: float = 0.0  # its launch, in seconds after the launch of the first script
    begun_s: float = 0.0  # start of its first step, on the same clock
    first_step: int = 0  # steps done in the checkpoint from which it started
    step: int = 0
    done: Mapping[str, Any] | None = None  # its last row: hash of the weights, peak, loader time
    asked_to_end_s: float | None = None
    discard: bool = False


class Scripts:
    """Starts scripts in the order of the mode and records them. For the main thread only."""

    def __init__(
        self,
        files: BaselineFiles,
        store: Store,
        run: RunRow,
        device: str,
        attempts: dict[str, int],
        threads: dict[str, int],
        clock: Clock,
    ):
        """`device` is where it was placed; `attempts` and `threads` are per sub-model, in order of arrival."""
        self.inbox: queue.SimpleQueue[Message] = queue.SimpleQueue()  # messages of the scripts
        self._files, self._store, self._clock = files, store, clock
        self._run_id, self._mode, self._threads = run.id, run.mode, threads
        self._processes: dict[str, dict[str, object]] = {name: {"threads": count} for name, count in threads.items()}
        self._tracks = {name: _Track(name, attempt) for name, attempt in attempts.items()}
        self._together = run.mode == "concurrent"
        self._launched_s: float | None = None
        self._launched_at_s = 0.0
        self._facts_known = False
        self._cpu_s = 0.0
        self._load = LoadMeter(lambda: self._cpu_s + time.process_time())
        self._pace = SamplingBudget(clock, most_share=1.0)  # the gauge limits its own cost
        gpu = device.removeprefix("cuda:") if device.startswith("cuda") else None
        self._gauge = ScriptGauge(None if gpu is None else GpuSampler(int(gpu)), clock)
        self.writer = BaselineWriter(store, run.id, clock)

    @property
    def over(self) -> bool:
        """Whether all have ended and everything is written."""
        return self.writer.written and all(track.over for track in self._tracks.values())

    def launch(self) -> None:
        """Start every script that may run now."""
        for track in self._tracks.values():
            busy = any(other.process is not None and not other.over for other in self._tracks.values())
            if not track.over and track.process is None and (self._together or not busy):
                self._start(track)

    def hear(self, said: ScriptRow) -> None:
        """Record one row of a script."""
        track, row = self._tracks[said.name], {key: value for key, value in said.row.items() if key != "kind"}
        batch, columns = self.writer.batch, self.writer.columns(track.name)
        keys = {"submodel": track.name, "attempt": track.attempt}
        match said.row["kind"]:
            case "begun":
                track.first_step = track.step = row["step"]
                columns |= {"steps_done": row["step"], "epochs_done": row["epoch"]}
                self._record_slice(track, STARTING)
                if not self._facts_known:
                    self._facts_known = True
                    self.record_environment({**row["environment"], "processes": self._processes})
            case "step":
                track.step = columns["steps_done"] = row["step"]
                batch.steps.append({**keys, **row})
            case "epoch":
                track.step = row["step"]
                batch.epochs.append({**keys, **row})
                columns |= {"epochs_done": row["epoch"], "steps_done": track.step}
                columns |= {name: row[name] for name in SHOWN_FIGURES}
            case "done":
                track.done = row
                self._processes[track.name] |= {name: row[name] for name in ("loader_s", "loader_cpu_s")}
                self.record_environment({"processes": self._processes})

    def end(self, ended: ScriptEnd) -> None:
        """Record the end of a script: what it used, and whether it wrote its weights."""
        track = self._tracks[ended.name]
        track.over = True
        self._cpu_s += ended.cpu_s
        end_s = ended.at_s - (self._launched_s or 0.0)
        if track.process is not None:
            self._gauge.end(track.name, track.process.pid, ended.peak_resident_bytes, self.writer.batch)
            self.record_environment({"pages": self._gauge.pages, "load": [self._load.read()]})
        weights = track.done if ended.code == 0 and not track.discard else None
        peak_bytes = (track.done or {}).get("peak_bytes") or self._gauge.peak_bytes.get(track.name)
        columns = self.writer.columns(track.name)
        columns |= {"steps_done": track.step, "service_s": end_s - track.start_s, "cpu_s": ended.cpu_s}
        columns |= {"ended_at_s": self._launched_at_s + end_s, "peak_memory_bytes": peak_bytes}
        columns |= {"lane": None, "turn_since_s": None, "turn_reason": None}
        self.writer.batch.hybrid |= {"cpu_s": self._cpu_s, "now_reason": None}
        self._record_slice(track, track.reason, end_s)
        if weights is not None:
            place = f"models/{self._files.weights(track.name).name}"
            columns |= {"model_path": place, "state_sha256": weights["state_sha256"]}
            self.writer.move(track.name, Event.COMPLETE)
        elif track.asked_to_end_s is not None:
            self._halt(track)
        else:
            log = self._files.log(track.name)
            shown = f"runs/{self._run_id}/baseline/{log.name} in the home folder"
            cause, remedy = cause_of(self._mode, ended.code, last_line(log), shown)
            self._fail(track, cause, remedy)

    def look(self) -> None:
        """Sample memory when due; kill scripts that ignored their SIGTERM."""
        now_s = self._clock.monotonic_s()
        pids = {}
        for track in self._tracks.values():
            if track.process is not None and not track.over:
                pids[track.name] = track.process.pid
                if track.asked_to_end_s is not None and now_s - track.asked_to_end_s > PATIENCE_S:
                    track.process.send(signal.SIGKILL)
        if pids and self._launched_s is not None and self._pace.due():
            with self._pace.spending():
                self._gauge.sample(now_s - self._launched_s, pids, self.writer.batch)
            for name in pids:
                self.writer.columns(name)["service_s"] = now_s - self._launched_s - self._tracks[name].start_s

    def stop(self, submodel: str | None, *, discard: bool) -> None:
        """End one sub-model, or all; idempotent."""
        for track in self._tracks.values():
            if submodel in (None, track.name) and not track.over and track.asked_to_end_s is None:
                track.asked_to_end_s, track.discard = self._clock.monotonic_s(), discard
                if track.process is None:
                    track.over = True
                    self._halt(track)
                else:
                    track.process.send(signal.SIGTERM)

    def _start(self, track: _Track) -> None:
        now_s = self._clock.monotonic_s()
        if self._launched_s is None:
            self._launched_s, self._launched_at_s = now_s, self._clock.utc_s()
            began = {"launched_at_s": self._launched_at_s, "started_at_s": self._launched_at_s}
            self.writer.batch.hybrid |= began
            self.writer.queue(partial(self._store.runs.update, self._run_id, **began))
        track.start_s, track.reason = now_s - self._launched_s, self._reason(track)
        try:
            job, log = self._files.job(track.name), self._files.log(track.name)
            track.process = ScriptProcess(track.name, job, log, self._threads[track.name], self.inbox, self._clock)
        except OSError as error:
            traceback.print_exc()
            track.over = True
            remedy = f"Correct this, then run the baseline again. The log is runs/{self._run_id}/worker.log."
            self._fail(track, f"The process could not be started: {error.strerror or error}.", remedy)
            return
        if not self._together:
            turn = {"lane": 1, "turn_since_s": track.start_s, "turn_reason": track.reason}
            self.writer.columns(track.name).update(turn)
            self.writer.batch.hybrid |= {"now_reason": track.reason}
        self.writer.move(track.name, Event.BEGIN)

    def _reason(self, track: _Track) -> str:
        if self._together:
            return "All start together, each in its own process."
        before = [other.name for other in self._tracks.values() if other.over and other.process is not None]
        return f"{before[-1]} has ended; {track.name} is next." if before else f"{track.name} came first."

    def _halt(self, track: _Track) -> None:
        self._files.weights(track.name).unlink(missing_ok=True)
        self.writer.move(track.name, Event.HALT, "Stopped by a person. A stopped baseline keeps no weights.")

    def _fail(self, track: _Track, cause: str, remedy: str) -> None:
        self._files.weights(track.name).unlink(missing_ok=True)
        self.writer.note(track.name, Code.FAILED, cause=cause, remedy=remedy)
        self.writer.move(track.name, Event.FAIL, cause, remedy)

    def _record_slice(self, track: _Track, reason: str, end_s: float | None = None) -> None:
        """Record the work of a process since its last slice; without `end_s` its start, in which it takes no step."""
        until_s = self._clock.monotonic_s() - (self._launched_s or 0.0) if end_s is None else end_s
        keys = {"submodel": track.name, "attempt": track.attempt, "reason": reason}
        times = {"start_s": track.begun_s or track.start_s, "end_s": until_s}
        steps = {"from_step": track.first_step, "steps": track.step - track.first_step}
        self.writer.batch.slices.append(keys | times | steps)
        track.begun_s = until_s

    def record_environment(self, facts: Mapping[str, object]) -> None:
        """Add facts about the environment to the run, after everything queued before."""
        self.writer.queue(partial(self._store.hybrids.record_environment, self._run_id, copy.deepcopy(dict(facts))))
