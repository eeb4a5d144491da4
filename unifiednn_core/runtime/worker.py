"""The worker: one process that trains one run on one device.

The engine trains in a background thread. The main thread writes down what it reports, hands it the orders of people,
and samples memory. A third thread separates what has ended. The store is all that they share with the outside.
"""

import os
import queue
import sys
import threading
import time
import traceback
from collections import deque
from pathlib import Path

from sqlalchemy.exc import OperationalError

from unifiednn_core.clock import Clock, RealClock
from unifiednn_core.errors import UnifiedNNError
from unifiednn_core.home import Home
from unifiednn_core.hybrid.graph import to_dot
from unifiednn_core.lifecycle import ENDED, Event, State
from unifiednn_core.memory.samplers import NVML_DEVICE, NVML_PROCESS, GpuSampler, MemorySample, process_memory
from unifiednn_core.runtime import liveness
from unifiednn_core.runtime.assembly import Assembly, assemble
from unifiednn_core.runtime.delivery import Delivered, Deliveries, Postponed
from unifiednn_core.runtime.recorder import Recorder
from unifiednn_core.spec import RunSpec
from unifiednn_core.store import Store
from unifiednn_core.training.device import environment
from unifiednn_core.training.engine import Order
from unifiednn_core.training.events import Ended, Report

TICK_S = 0.2
MEMORY_PERIOD_S = 0.5

_Message = Report | Delivered | Postponed


class Worker:
    """Everything between the store and the engine of one run."""

    def __init__(self, home: Home, store: Store, run_id: str, clock: Clock | None = None):
        self._home, self._store, self._run_id, self._clock = home, store, run_id, clock or RealClock()
        self._run, submodels = store.runs.get(run_id)
        self._spec = RunSpec.model_validate(self._run.spec)
        self._filenames: dict[str, str] = self._run.environment.get("files", {})
        self._open = {row.name for row in submodels}
        self._inbox: queue.SimpleQueue[_Message] = queue.SimpleQueue()
        self._unwritten: deque[_Message] = deque()

    def run(self) -> None:
        """Load, train to the end, and write down how it went."""
        threads = self._run.threads or 1
        work = assemble(self._home, self._spec, self._filenames, threads, self._inbox.put)
        recorder = Recorder(self._store, self._run_id, self._run.attempt, work.steps, self._clock)
        record = dict(self._run.environment, **environment(work.device, threads))
        self._store.runs.update(self._run_id, environment=record, graph=to_dot(work.hybrid))
        self._store.runs.transition(self._run_id, None, Event.BEGIN)
        folder = self._home.run(self._run_id) / "models"
        deliveries = Deliveries(folder, work.definitions, self._spec_of, self._inbox.put)
        self._watch(work, recorder, deliveries)

    def _watch(self, work: Assembly, recorder: Recorder, deliveries: Deliveries) -> None:
        """Carry reports, orders and memory figures to and fro until every sub-model is delivered."""
        gpu = GpuSampler(work.device.index or 0) if work.device.type == "cuda" else None
        thread, next_sample_s = work.engine.start(), 0.0
        while True:
            if self._open and not thread.is_alive() and deliveries.idle and self._inbox.empty() and not self._unwritten:
                raise RuntimeError("The engine ended before its sub-models did; the worker's log says why.")
            now_s = work.engine.now_s()
            if now_s >= next_sample_s:
                next_sample_s = now_s + MEMORY_PERIOD_S
                recorder.memory(now_s, *_memory(gpu))
            try:
                self._carry_orders(work)
                self._write_down(recorder, deliveries)
                recorder.flush(self._store.telemetry.write, work.engine.now_s())
                if not self._open:
                    self._conclude()
                    return
            except OperationalError:  # a full disk or a locked store: nothing is dropped, the next turn tries again
                traceback.print_exc()
            time.sleep(TICK_S)

    def _carry_orders(self, work: Assembly) -> None:
        commands = self._store.commands.open(self._run_id)
        for command in commands:
            work.engine.post(Order(command.event, command.submodel))
        if commands:
            self._store.commands.applied(command.id for command in commands)

    def _write_down(self, recorder: Recorder, deliveries: Deliveries) -> None:
        """Take all messages in; one that cannot be written stays first in line."""
        while not self._inbox.empty():
            self._unwritten.append(self._inbox.get())
        while self._unwritten:
            match self._unwritten[0]:
                case Delivered() as delivered:
                    self._delivered(delivered)
                    self._open.discard(delivered.submodel)
                case Postponed() as postponed:
                    recorder.note(postponed.submodel, "warning", postponed.message)
                case report:
                    self._record(recorder, report)
                    if isinstance(report, Ended):
                        deliveries.hand_over(report)
            self._unwritten.popleft()

    def _record(self, recorder: Recorder, report: Report) -> None:
        """Take one report in; a figure that cannot be recorded is noted, and costs nobody the training."""
        try:
            recorder.record(report)
        except OperationalError:
            raise
        except Exception as error:
            traceback.print_exc()
            recorder.note(None, "defect", f"A report could not be recorded: {type(error).__name__}.")

    def _delivered(self, delivered: Delivered) -> None:
        """Only a file that was read back and verified makes a sub-model completed."""
        separated = delivered.separated
        if separated is not None:
            self._store.runs.record_artifact(
                self._run_id,
                delivered.submodel,
                artifact=separated.archive.name,
                artifact_bytes=separated.size_bytes,
                model_path=str(separated.model_path),
                state_sha256=separated.state_sha256,
            )
        self._store.runs.transition(
            self._run_id, delivered.submodel, delivered.event, cause=delivered.cause, remedy=delivered.remedy
        )

    def _conclude(self) -> None:
        """End the run: failed where a sub-model failed, stopped where a person stopped it, else completed."""
        run, submodels = self._store.runs.get(self._run_id)
        failed = [row.name for row in submodels if State(row.state) is State.FAILED]
        if failed:
            cause = f"{', '.join(failed)} failed; what the others learnt is kept."
            self._end_run(Event.FAIL, cause, "Open the failed sub-model: its own cause and remedy are there.")
        elif State(run.state) is State.STOPPING:
            self._end_run(Event.HALT)
        else:
            self._end_run(Event.COMPLETE)

    def _end_run(self, event: Event, cause: str | None = None, remedy: str | None = None) -> None:
        self._store.runs.transition(self._run_id, None, event, cause=cause, remedy=remedy)

    def _spec_of(self, name: str) -> dict[str, object]:
        """What is written as `spec.json` beside a model: its part of the spec, files under their own names again."""
        document = self._spec.model_dump(mode="json", exclude_none=True)
        [submodel] = [part for part in document.pop("submodels") if part["name"] == name]
        for key in ("model", "train_data", "test_data"):
            if key in submodel:
                submodel[key] = self._filenames.get(submodel[key], submodel[key])
        submodel["hyperparameters"].setdefault("seed", self._spec.seed)
        return {**document, "threads": self._run.threads, "submodels": [submodel]}


def _memory(gpu: GpuSampler | None) -> tuple[list[MemorySample], str]:
    """Figures of this instant, and the source that stands for the run: the process on the GPU, else on the host."""
    host = process_memory(os.getpid())
    on_gpu = gpu.samples(os.getpid()) if gpu is not None else []
    sources = {sample.source for sample in on_gpu}
    main = next((source for source in (NVML_PROCESS, NVML_DEVICE) if source in sources), host.source)
    return [host, *on_gpu], main


def fail(store: Store, run_id: str, error: Exception) -> None:
    """Record that a run cannot be trained at all."""
    cause = str(error) if isinstance(error, UnifiedNNError) else f"{type(error).__name__}: {error}"
    remedy = f"The log runs/{run_id}/worker.log in the home folder has the whole trace. Correct it and submit it again."
    _, submodels = store.runs.get(run_id)
    for row in submodels:
        if State(row.state) not in ENDED:
            store.runs.transition(run_id, row.name, Event.FAIL, cause=cause, remedy=remedy)
    store.runs.transition(run_id, None, Event.FAIL, cause=cause, remedy=remedy)


def main() -> int:
    """Train the run named on the command line: `python -m unifiednn_core.runtime.worker HOME RUN_ID`."""
    home, run_id = Home(Path(sys.argv[1])), sys.argv[2]
    threading.current_thread().name = "telemetry"
    store = Store.open(home)
    if not store.runs.register_worker(run_id, liveness.current()):
        return 1  # it came up so late that the run was given up
    try:
        Worker(home, store, run_id).run()
    except Exception as error:
        traceback.print_exc()
        fail(store, run_id, error)
        sys.stderr.flush()
        os._exit(1)  # the engine's thread must not hold the device any longer
    return 0


if __name__ == "__main__":
    sys.exit(main())
