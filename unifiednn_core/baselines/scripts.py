"""The scripts of one baseline: who waits, who runs, who has ended, and what is written down of each."""

import queue
import signal
import traceback
from collections.abc import Mapping
from dataclasses import dataclass

from unifiednn_core.baselines import processes
from unifiednn_core.baselines.causes import cause_of, last_line
from unifiednn_core.baselines.gauge import Gauge
from unifiednn_core.baselines.journal import Journal
from unifiednn_core.baselines.plan import Places
from unifiednn_core.baselines.processes import Ended, Message, Process, Said
from unifiednn_core.clock import Clock
from unifiednn_core.lifecycle import Event
from unifiednn_core.memory.pace import Pace
from unifiednn_core.memory.samplers import GpuSampler
from unifiednn_core.store import Store
from unifiednn_core.store.schema import RunRow

SEQUENTIAL = "sequential"
PATIENCE_S = 5.0  # from asking a script to end to killing it
_SHOWN = ("train_loss", "train_accuracy", "test_loss", "test_accuracy")


@dataclass(slots=True)
class _Track:
    """One script."""

    name: str
    attempt: int
    reason: str = ""
    process: Process | None = None
    over: bool = False
    start_s: float = 0.0
    """After the launch of the first script."""
    first_step: int = 0
    """Steps that were behind it when it started."""
    step: int = 0
    weights: Mapping[str, object] | None = None
    """What it said of its weights, once they are written."""
    asked_to_end_s: float | None = None
    discard: bool = False
    killed: bool = False

    @property
    def runs(self) -> bool:
        return self.process is not None and not self.over


class Scripts:
    """Starts scripts as the mode of the baseline says, and keeps its journal. Used by the main thread alone."""

    def __init__(
        self,
        places: Places,
        store: Store,
        run: RunRow,
        attempts: Mapping[str, int],
        inbox: "queue.SimpleQueue[Message]",
        clock: Clock,
    ):
        """`attempts` names the sub-models in order of arrival."""
        self._places, self._store, self._inbox, self._clock = places, store, inbox, clock
        self._run_id, self._mode, self._threads = run.id, run.mode, run.threads or 1
        self._tracks = {name: _Track(name, attempt) for name, attempt in attempts.items()}
        self._launched_s: float | None = None
        self._launched_at_s = 0.0
        self._told_environment = False
        self._cpu_s = 0.0
        self._pace = Pace(clock, most_share=1.0)  # the gauge itself sees to what a look costs
        on_gpu = run.device.startswith("cuda")
        self._gauge = Gauge(GpuSampler(int(run.device.partition(":")[2] or 0)) if on_gpu else None, clock)
        self.journal = Journal(store, run.id, clock)

    @property
    def over(self) -> bool:
        """Whether all have ended, and everything of them is written."""
        return self.journal.written and all(track.over for track in self._tracks.values())

    # -- what happens

    def launch(self) -> None:
        """Start everybody whose turn it is."""
        for track in self._tracks.values():
            if track.over or track.process is not None:
                continue
            if self._mode == SEQUENTIAL and any(other.runs for other in self._tracks.values()):
                return
            self._start(track)

    def hear(self, said: Said) -> None:
        """Take in what a script told."""
        track, row = self._tracks[said.name], {key: value for key, value in said.row.items() if key != "kind"}
        batch, columns, keys = self.journal.batch, self.journal.columns(track.name), {"submodel": track.name}
        match said.row["kind"]:
            case "begun":
                track.first_step = track.step = row["step"]
                columns |= {"steps_done": row["step"], "epochs_done": row["epoch"]}
                self._tell_environment(row["environment"])
            case "step":
                track.step = row["step"]
                batch.steps.append({**keys, "attempt": track.attempt, **row})
                columns["steps_done"] = track.step
            case "epoch":
                track.step = row["step"]
                batch.epochs.append({**keys, "attempt": track.attempt, **row})
                columns |= {"epochs_done": row["epoch"], "steps_done": track.step}
                columns |= {name: row[name] for name in _SHOWN}
            case "done":
                track.weights = row

    def end(self, ended: Ended) -> None:
        """Enter the end of a script: what it used, and whether its weights are there."""
        track = self._tracks[ended.name]
        track.over = True
        self._cpu_s += ended.cpu_s
        end_s = ended.at_s - (self._launched_s or 0.0)
        if track.process is not None:
            self._gauge.end(track.name, track.process.pid, ended.peak_resident_bytes, self.journal.batch)
        weights = track.weights if ended.code == 0 and not track.discard else None
        peak_bytes = (track.weights or {}).get("peak_bytes") or self._gauge.peak_bytes.get(track.name)
        self.journal.columns(track.name).update(
            steps_done=track.step,
            service_s=end_s - track.start_s,
            ended_at_s=self._launched_at_s + end_s,
            cpu_s=ended.cpu_s,
            peak_memory_bytes=peak_bytes,
        )
        self.journal.batch.run |= {"cpu_s": self._cpu_s, "now_submodel": None, "now_reason": None, "now_since_s": None}
        self.journal.batch.slices.append(
            {
                "submodel": track.name,
                "attempt": track.attempt,
                "start_s": track.start_s,
                "end_s": end_s,
                "steps": track.step - track.first_step,
                "reason": track.reason,
            }
        )
        if weights is not None:
            path = str(self._places.weights(track.name))
            self.journal.columns(track.name).update(model_path=path, state_sha256=weights["state_sha256"])
            self.journal.move(track.name, Event.COMPLETE)
        elif track.asked_to_end_s is not None:
            self._halt(track)
        else:
            log = self._places.log(track.name)
            cause, remedy = cause_of(self._mode, ended.code, last_line(log), self._shown(log.name))
            self._fail(track, cause, remedy)

    def look(self) -> None:
        """Sample memory where that is due, and kill who was asked to end long ago."""
        now_s = self._clock.monotonic_s()
        running = {track.name: track.process.pid for track in self._tracks.values() if track.runs and track.process}
        for track in self._tracks.values():
            late = track.asked_to_end_s is not None and now_s - track.asked_to_end_s > PATIENCE_S
            if track.runs and track.process and late and not track.killed:
                track.killed = True
                track.process.send(signal.SIGKILL)
        if running and self._launched_s is not None and self._pace.due():
            with self._pace.spending():
                self._gauge.sample(now_s - self._launched_s, running, self.journal.batch)
            for name in running:
                self.journal.columns(name)["service_s"] = now_s - self._launched_s - self._tracks[name].start_s

    def stop(self, submodel: str | None, *, discard: bool) -> None:
        """End one sub-model, or all; who has been asked already is not asked again."""
        for track in self._tracks.values():
            if submodel in (None, track.name) and not track.over and track.asked_to_end_s is None:
                track.asked_to_end_s, track.discard = self._clock.monotonic_s(), discard
                if track.process is None:
                    track.over = True
                    self._halt(track)
                else:
                    track.process.send(signal.SIGTERM)

    # -- inside

    def _start(self, track: _Track) -> None:
        now_s = self._clock.monotonic_s()
        if self._launched_s is None:
            self._launched_s, self._launched_at_s = now_s, self._clock.utc_s()
            self.journal.batch.run |= {"launched_at_s": self._launched_at_s, "started_at_s": self._launched_at_s}
        track.start_s, track.reason = now_s - self._launched_s, self._reason(track)
        try:
            job, log = self._places.job(track.name), self._places.log(track.name)
            track.process = processes.start(track.name, job, log, self._threads, self._inbox, self._clock)
        except OSError as error:
            traceback.print_exc()
            track.over = True
            remedy = f"Correct that on this machine, then run it again. The log is runs/{self._run_id}/worker.log."
            self._fail(track, f"The process could not be started: {error.strerror or error}.", remedy)
            return
        if self._mode == SEQUENTIAL:
            self.journal.batch.run |= {
                "now_submodel": track.name, "now_reason": track.reason, "now_since_s": track.start_s
            }  # fmt: skip
        self.journal.move(track.name, Event.BEGIN)

    def _reason(self, track: _Track) -> str:
        if self._mode != SEQUENTIAL:
            return "All start together, each in a process of its own."
        before = [other.name for other in self._tracks.values() if other.over and other.process is not None]
        return f"{before[-1]} has ended; {track.name} is next." if before else f"{track.name} came first."

    def _halt(self, track: _Track) -> None:
        self._places.weights(track.name).unlink(missing_ok=True)
        self.journal.move(
            track.name, Event.HALT, "A person stopped it; a baseline that is cut short leaves no weights."
        )

    def _fail(self, track: _Track, cause: str, remedy: str) -> None:
        self._places.weights(track.name).unlink(missing_ok=True)
        self.journal.note(track.name, "error", f"{cause} {remedy}")
        self.journal.move(track.name, Event.FAIL, cause, remedy)

    def _tell_environment(self, facts: Mapping[str, object]) -> None:
        if not self._told_environment:
            self._told_environment = True
            self.journal.enter(lambda: self._store.runs.record_environment(self._run_id, facts))

    def _shown(self, name: str) -> str:
        return f"runs/{self._run_id}/baseline/{name} in the home folder"
