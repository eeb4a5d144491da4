"""Writes down what engine, separator and keeper report, and sees to what follows from it. Used by one thread alone."""

import queue
import traceback
from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import Any

from sqlalchemy.exc import OperationalError

from unifiednn_core.checkpoints.checkpoint import Checkpoint
from unifiednn_core.checkpoints.shelf import Shelf
from unifiednn_core.clock import Clock
from unifiednn_core.errors import IllegalTransition
from unifiednn_core.runtime.assembly import Workbench
from unifiednn_core.runtime.delivery import Delivered, Deliveries, Postponed
from unifiednn_core.runtime.keeper import Keeper
from unifiednn_core.runtime.recorder import Recorder
from unifiednn_core.spec import RunSpec
from unifiednn_core.store import Store
from unifiednn_core.store.commands import Verb
from unifiednn_core.store.telemetry import SEPARATED
from unifiednn_core.training.engine import Engine
from unifiednn_core.training.events import Captured, Ended, Obeyed, Report

_Message = Report | Delivered | Postponed


class Ledger:
    """The writing hand of a worker. What cannot be written now stays first in line; nothing is dropped."""

    def __init__(self, store: Store, run_id: str, bench: Workbench, clock: Clock):
        self._store, self._run_id, self._bench = store, run_id, bench
        self._inbox: queue.SimpleQueue[_Message] = queue.SimpleQueue()
        self._unwritten: deque[_Message] = deque()
        self._engine: Engine | None = None
        self.report = self._inbox.put
        """Take a report, from any thread."""
        self.recorder = Recorder(store, run_id, clock)
        self.open: set[str] = set()
        """Sub-models that have not been delivered."""
        self.pause: Obeyed | None = None
        """The order to pause the whole run, once the engine has obeyed it."""
        self._recorded = False
        """Whether the first in line is in the recorder already, and waits only for what follows from it."""
        self._keeper = Keeper(
            bench.shelf, self._kept, self._settled, lambda name, said: self.report(Postponed(name, said))
        )
        self._deliveries = Deliveries(
            bench.home.run(run_id) / "models", bench.definitions, self._spec_of, self._inbox.put
        )

    def attach(self, engine: Engine) -> None:
        """Say whose reports these are."""
        self._engine = engine

    @property
    def idle(self) -> bool:
        """Whether everything that came in is written down and seen to.

        Where all have been delivered, a last checkpoint that finds no room is not waited for.
        """
        kept = self._keeper.idle or (self._keeper.stalled and not self.open)
        return self._inbox.empty() and not self._unwritten and kept and self._deliveries.idle

    def write_down(self) -> None:
        """Take all messages in and write the batch; raises `OperationalError` where the store cannot be written now."""
        while not self._inbox.empty():
            self._unwritten.append(self._inbox.get())
        while self._unwritten:
            match self._unwritten[0]:
                case Delivered() as delivered:
                    self._delivered(delivered)
                    self.open.discard(delivered.submodel)
                case Postponed() as postponed:
                    self.recorder.note(postponed.submodel, "warning", postponed.message)
                case report:
                    if not self._recorded:
                        self._record(report)
                    self._recorded = True
                    self._act_on(report)
            self._unwritten.popleft()
            self._recorded = False
        self._flush()

    # -- inside

    def _record(self, report: Report) -> None:
        """Take one report in; a figure that cannot be recorded is noted, and costs nobody the training."""
        try:
            self.recorder.record(report)
        except OperationalError:
            raise
        except Exception as error:
            traceback.print_exc()
            self.recorder.note(None, "defect", f"A report could not be recorded: {type(error).__name__}.")

    def _act_on(self, report: Report) -> None:
        match report:
            case Captured(checkpoint=checkpoint):
                self._flush()  # the metrics of a step are in the store before a checkpoint says that it is done
                self._keeper.put(checkpoint)
            case Ended(discarded=True):
                self._flush()
                self._keeper.drop(report.submodel)
                self._keeper.after(partial(self._discard, report))
            case Ended():
                self._flush()
                if report.checkpoint is not None:
                    self._keeper.put(report.checkpoint)
                self._deliveries.hand_over(report)
            case Obeyed(id=command_id, declined=str(reason)):
                self._store.commands.decline(command_id, reason)
            case Obeyed():
                self._answer(report)

    def _answer(self, obeyed: Obeyed) -> None:
        """Let a command take effect in the store; a pause and a save do so once what they kept is on disk."""
        asked = {command.id: command for command in self._store.commands.open(self._run_id)}.get(obeyed.id)
        if asked is None:  # its target has ended in the meantime, which answered it
            return
        carry_out = partial(self._store.commands.carry_out, obeyed.id, obeyed.step)
        if asked.verb is Verb.PAUSE and asked.submodel is None:
            self.pause = obeyed
        elif asked.verb in (Verb.PAUSE, Verb.SAVE):
            self._keeper.after(carry_out)
        else:
            carry_out()

    def _discard(self, ended: Ended) -> None:
        """Remove what was kept of a sub-model; only then has it ended."""
        self._bench.shelf(ended.submodel).clear()
        self._store.runs.forget_checkpoint(self._run_id, ended.submodel)
        self._deliveries.hand_over(ended)

    def is_keeping(self, submodel: str) -> bool:
        """Whether checkpoints of a sub-model wait to be written."""
        return self._keeper.busy_with(submodel)

    def _flush(self) -> None:
        self.recorder.flush(self._store.telemetry.write, 0.0 if self._engine is None else self._engine.now_s())

    def _delivered(self, delivered: Delivered) -> None:
        """Only a file that was read back and verified makes a sub-model completed."""
        name, separated, cause = delivered.submodel, delivered.separated, delivered.cause
        if separated is not None:
            self._store.runs.record_artifact(
                self._run_id,
                name,
                artifact=separated.archive.name,
                artifact_bytes=separated.size_bytes,
                model_path=str(separated.model_path),
                state_sha256=separated.state_sha256,
            )
            self.recorder.note(name, SEPARATED, f"{name} was separated: {separated.archive.name}.")
        if delivered.discarded:
            cause = "A person discarded it; nothing of it was kept."
        try:
            self._store.runs.transition(self._run_id, name, delivered.event, cause=cause, remedy=delivered.remedy)
        except IllegalTransition as error:  # a state that is wrong costs less than everybody's training
            self.recorder.note(name, "defect", str(error))
        self._bench.definitions.pop(name, None)

    def _kept(self, checkpoint: Checkpoint, shelf: Shelf) -> None:
        path = shelf.newest_path()
        if path is not None:
            self._store.runs.record_checkpoint(
                self._run_id,
                checkpoint.submodel,
                name=path.name,
                step=checkpoint.step,
                size_bytes=path.stat().st_size,
            )

    def _settled(self, submodel: str) -> None:
        if self._engine is not None:
            self._engine.kept(submodel)

    def _spec_of(self, name: str) -> Mapping[str, Any]:
        """What is written as `spec.json` beside a model: its part of the spec, files under their own names again."""
        run, _ = self._store.runs.get(self._run_id)
        spec, filenames = RunSpec.model_validate(run.spec), run.environment.get("files", {}).get(name, {})
        document = spec.model_dump(mode="json", exclude_none=True)
        [submodel] = [part for part in document.pop("submodels") if part["name"] == name]
        for holder, key in ((submodel, "model"), (submodel, "train_data"), (submodel, "test_data"),
                            (submodel.get("start_from", {}), "file")):  # fmt: skip
            if key in holder:
                holder[key] = filenames.get(holder[key], holder[key])
        submodel["hyperparameters"].setdefault("seed", spec.seed)
        return {**document, "threads": run.threads, "submodels": [submodel]}
