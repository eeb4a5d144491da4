"""Takes sub-models up where they were: reads their files and checkpoints, and opens their attempts in the store."""

import traceback
from dataclasses import dataclass
from functools import partial

from sqlalchemy.exc import OperationalError

from unifiednn_core.lifecycle import Event, State
from unifiednn_core.runtime.assembly import Ingredients, Workbench
from unifiednn_core.runtime.at_work import AtWork
from unifiednn_core.runtime.ledger import Ledger
from unifiednn_core.spec import RunSpec
from unifiednn_core.store import Store
from unifiednn_core.store.schema import RunRow, SubModelRow
from unifiednn_core.training.job import Standing, cause_of, remedy_of
from unifiednn_core.training.rng import preserved
from unifiednn_core.training.submodel import SubModel


@dataclass(frozen=True, slots=True)
class TakeUp:
    """Brings sub-models from the store to the bench. One that cannot be read or put together fails alone."""

    store: Store
    run_id: str
    bench: Workbench
    ledger: Ledger
    at_work: AtWork

    def all(self, run: RunRow, rows: list[SubModelRow], in_line: list[str]) -> list[tuple[SubModel, Standing]]:
        """Sub-models that are ready to train, in order of `rows`; `in_line` names them as they wait."""
        taken: list[tuple[SubModel, Standing]] = []
        for row in rows:
            self.at_work.mark(row.name, "loading")
            read = self.read(run, row, peers=len(rows))
            if read is None:
                continue
            try:
                with preserved(self.bench.device):
                    submodel = self.bench.add(read)
            except Exception as error:
                self._fail(row, error)
                continue
            standing = Standing(
                in_line_since=in_line.index(row.name),
                state=State.PAUSED if row.state == State.PAUSED.value else State.QUEUED,
                service_s=row.service_s,
                paused_s=row.paused_s,
                captured_step=read.kept_step,
            )
            taken.append((submodel, standing))
        self.at_work.clear()
        return taken

    def read(self, run: RunRow, row: SubModelRow, *, peers: int) -> Ingredients | None:
        """Read one sub-model of `peers` and open its attempt; None, and it has failed, where that is not possible."""
        spec = RunSpec.model_validate(run.spec)
        part = next(part for part in spec.submodels if part.name == row.name)
        try:
            tell = partial(self.store.runs.warn, self.run_id, row.name)
            read = self.bench.read(spec, part, run.environment.get("files", {}).get(row.name, {}), tell)
        except OperationalError:
            raise
        except Exception as error:
            self._fail(row, error)
            return None
        # A worker that was killed right after a checkpoint was renamed did not come to record it.
        newest = self.bench.shelf(row.name).newest_path() if read.kept_step else None
        kept = {} if newest is None else {
            "checkpoint": newest.name, "checkpoint_step": read.kept_step, "checkpoint_bytes": newest.stat().st_size
        }  # fmt: skip
        attempts = self.store.workers.begin(self.run_id, {row.name: read.columns | kept})
        steps_per_epoch = row.steps_total // row.epochs
        self.ledger.recorder.admit(row, attempts[row.name], steps_per_epoch=steps_per_epoch, peers=peers)
        self.ledger.open.add(row.name)
        return read

    def _fail(self, row: SubModelRow, error: Exception) -> None:
        traceback.print_exception(error)
        self.ledger.open.discard(row.name)
        self.store.runs.transition(self.run_id, row.name, Event.FAIL, cause=cause_of(error), remedy=remedy_of(error))
