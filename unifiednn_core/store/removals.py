"""Rows of runs and files that are being deleted.

A deletion first marks a row: from then on nobody sees it. Then its files go, then its rows. A mark that is left after a
crash is finished by `runtime.removal.finish`.
"""

from collections.abc import Callable

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from unifiednn_core.base import failpoints
from unifiednn_core.base.errors import BadInput, NotFound
from unifiednn_core.spec.lifecycle import ENDED, State
from unifiednn_core.store.database import Repository
from unifiednn_core.store.runs import run_of
from unifiednn_core.store.schema import (
    AttemptRow,
    Base,
    FileOwnerRow,
    FileRow,
    FileUseRow,
    HybridRow,
    RunRow,
    SubModelRow,
)
from unifiednn_core.store.webhooks import step_back_in

NEEDS = (*(state.value for state in State if state not in ENDED), State.INTERRUPTED.value)
"""States of runs that still need their files; an interrupted one can be resumed."""


class Removals(Repository):
    """Marks runs and files, and removes the rows of marked ones."""

    def mark_run(self, run_id: str) -> None:
        """Hide a run from everybody. Raises `NotFound`, and `BadInput` for one that has not ended."""
        with self._database.write() as session:
            run = run_of(session, run_id)
            hybrid = session.get(HybridRow, run_id)
            if State(run.state) not in ENDED or (hybrid is not None and hybrid.heartbeat_at_s is not None):
                message = f"'{run.name}' is {run.state}; only a run that has ended can be deleted."
                raise BadInput.of("Not ended", run_id, message, "Stop it first, or wait for its end.")
            run.removed_at_s = self._clock.utc_s()
        failpoints.passing("removal.after_mark")

    def drop_checkpoints(self, run_id: str, hide: Callable[[], object]) -> None:
        """Forget the checkpoints of a run, and `hide` their folder in the same transaction, before or after any retry.

        Raises `BadInput` for a run that still needs them, and `NotFound`.
        """
        names = ("checkpoint", "checkpoint_step", "checkpoint_bytes", "checkpoint_at_s")
        with self._database.write() as session:
            run = run_of(session, run_id)
            if run.state in NEEDS:
                raise BadInput.of("Not ended", run_id, f"'{run.name}' is {run.state}.", "Stop it first.")
            for row in session.scalars(select(SubModelRow).where(SubModelRow.run_id == run_id)):
                row.assign(dict.fromkeys(names))
            session.flush()
            hide()

    def mark_file(self, sha256: str, owner: str, *, for_all: bool) -> bool:
        """Take a file from its owner, or from all owners; True if nobody has it any more, so that its bytes go.

        Raises `NotFound`, and `BadInput` if a run that has not ended needs it: one of this owner, or of anybody if the
        bytes would go.
        """
        with self._database.write() as session:
            file = session.get(FileRow, sha256)
            rows = session.scalars(select(FileOwnerRow).where(FileOwnerRow.sha256 == sha256))
            owners = {row.owner: row for row in rows}
            if file is None or file.removed_at_s is not None or not (for_all or owner in owners):
                raise NotFound(f"There is no file '{sha256[:12]}' in the library.")
            last = for_all or set(owners) == {owner}
            self._require_unused(session, sha256, None if last else owner)
            for name, row in owners.items():
                if last or name == owner:
                    session.delete(row)
            if last:
                file.removed_at_s = self._clock.utc_s()
        failpoints.passing("removal.after_mark")
        return last

    def _require_unused(self, session: Session, sha256: str, owner: str | None) -> None:
        asked = (
            select(RunRow.name, FileUseRow.submodel)
            .join(FileUseRow, FileUseRow.run_id == RunRow.id)
            .join(SubModelRow, (SubModelRow.run_id == RunRow.id) & (SubModelRow.name == FileUseRow.submodel))
            .where(FileUseRow.sha256 == sha256, RunRow.state.in_(NEEDS), RunRow.removed_at_s.is_(None))
        )
        needed = session.execute(asked if owner is None else asked.where(SubModelRow.owner == owner)).first()
        if needed is not None:
            message = "A run that has not ended needs this file."
            if owner is None:  # whoever deletes the bytes sees all runs, or is their only owner
                message = f"'{needed.name}' has not ended, and its sub-model {needed.submodel} needs this file."
            raise BadInput.of("File in use", sha256[:12], message, "Wait for its end, or stop it.")

    def removable(self) -> list[tuple[str, str, float]]:
        """Id, name and end of each run that nobody can resume and no worker holds, the first ended first."""
        states = [state.value for state in ENDED - {State.INTERRUPTED}]
        held = select(HybridRow.id).where(HybridRow.heartbeat_at_s.is_not(None))
        asked = select(RunRow.id, RunRow.name, RunRow.ended_at_s).where(RunRow.state.in_(states))
        asked = asked.where(RunRow.removed_at_s.is_(None), RunRow.ended_at_s.is_not(None), RunRow.id.not_in(held))
        rows = self._all(asked.order_by(RunRow.ended_at_s))
        return [(run_id, name, ended_s or 0.0) for run_id, name, ended_s in rows]

    def marked_runs(self) -> list[str]:
        """Runs whose deletion is not finished."""
        return self._rows(select(RunRow.id).where(RunRow.removed_at_s.is_not(None)))

    def marked_files(self) -> list[str]:
        """Files whose deletion is not finished."""
        return self._rows(select(FileRow.sha256).where(FileRow.removed_at_s.is_not(None)))

    def forget_run(self, run_id: str) -> None:
        """Remove all rows about a marked run; its figures in other tables go first, the run itself last.

        One table at a time, so that workers that write never wait long.
        """
        for table in reversed(Base.metadata.sorted_tables):
            column = next((table.c[name] for name in ("run_id", "hybrid_id") if name in table.c), None)
            if column is not None:
                with self._database.write() as session:
                    session.execute(delete(table).where(column == run_id))
                    step_back_in(session)
        with self._database.write() as session:
            session.execute(delete(HybridRow).where(HybridRow.id == run_id))
            session.execute(delete(RunRow).where(RunRow.id == run_id))

    def forget_file(self, sha256: str) -> None:
        """Remove the rows of a marked file. What runs named it stays known: it may be imported again."""
        with self._database.write() as session:
            file = session.get(FileRow, sha256)
            if file is not None and file.removed_at_s is not None:
                session.execute(delete(FileOwnerRow).where(FileOwnerRow.sha256 == sha256))
                session.delete(file)

    def empty_hybrids(self) -> list[str]:
        """Shared hybrids that have ended and of which no run tells any more."""
        told = (
            select(table.run_id).where(table.hybrid_id == HybridRow.id).exists() for table in (AttemptRow, SubModelRow)
        )
        asked = select(HybridRow.id).where(HybridRow.shared.is_(True), HybridRow.ended_at_s.is_not(None))
        asked = asked.where(HybridRow.heartbeat_at_s.is_(None), *(~one for one in told))
        return self._rows(asked)
