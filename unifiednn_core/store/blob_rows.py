"""Which blobs there are. A row comes before its blob and leaves after it, so a crash leaves neither without the other.

The states of a row order all hosts: bytes are put only under a row that is `coming`, and deleted only under one that is
`going`, to which one process alone moves it. Nothing is used unless its row is `whole`, or `doubted`: then a host could
not read it, which is no reason to delete it, but one to put it again.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

from sqlalchemy import Select, delete, func, select, update
from sqlalchemy.orm import Session

from unifiednn_core.base.errors import BlobsUnreachable
from unifiednn_core.store.database import Repository
from unifiednn_core.store.schema import BlobRow, FileRow, HybridRow, RunRow, SubModelRow

COMING, COME, WHOLE, DOUBTED, LEAVING, GOING = "coming", "come", "whole", "doubted", "leaving", "going"
THERE = (WHOLE, DOUBTED)
CHECKPOINTS, MODELS = "checkpoints/", "models/"
"""Prefixes of names."""
LOST_AFTER_S = 24 * 3600.0
"""A blob to which nothing refers after so long came to nothing."""
STUCK_AFTER_S = 3600.0
"""Whoever was deleting a blob for so long has died."""
MOST_AT_ONCE = 100


def file_key(sha256: str) -> str:
    """Key of a file of the library."""
    return f"files/{sha256}"


class BlobRows(Repository):
    """Reads and moves the rows of blobs. All hosts count their age by the clock of the database."""

    def announce(
        self, key: str, *, size_bytes: int, run_id: str = "", submodel: str = "", name: str = ""
    ) -> Literal["new", "again", "whole"]:
        """Note that the bytes of a blob come, unless they are there already (`whole`).

        With `again` there may be some that are not these. Raises `BlobsUnreachable` while the blob is being deleted.
        """
        with self._database.write() as session:
            row = session.get(BlobRow, key)
            if row is not None and row.state in (COME, WHOLE) and row.name == name:
                if row.state == COME:  # somebody refers to it soon
                    row.at_s = self._clock.utc_s()
                return "whole"
            if row is not None and row.state == GOING:
                raise BlobsUnreachable("The same bytes are just being deleted")
            session.merge(
                BlobRow(
                    key=key,
                    run_id=run_id,
                    submodel=submodel,
                    name=name,
                    size_bytes=size_bytes,
                    state=COMING,
                    at_s=self._clock.utc_s(),
                )
            )
            return "new" if row is None else "again"

    def came(self, key: str) -> None:
        """Note that the bytes of a blob are there, so that nobody puts them again before a row refers to them."""
        with self._database.write() as session:
            coming = (BlobRow.key == key) & (BlobRow.state == COMING)
            session.execute(update(BlobRow).where(coming).values(state=COME, at_s=self._clock.utc_s()))

    def confirm(self, key: str) -> None:
        """Record that a file of the library is whole. Raises `BlobsUnreachable` if its row left meanwhile."""
        with self._database.write() as session:
            _confirm(session, key, self._clock.utc_s())

    def of(self, run_id: str, submodel: str | None = None) -> list[BlobRow]:
        """The whole blobs of a run, or of one of its sub-models, by name."""
        asked = select(BlobRow).where(BlobRow.run_id == run_id, BlobRow.state.in_(THERE)).order_by(BlobRow.name)
        return self._rows(asked if submodel is None else asked.where(BlobRow.submodel == submodel))

    def files_without(self) -> list[str]:
        """SHA-256 of the files of the library that have no blob, or one that a host could not read."""
        asked = select(FileRow.sha256).where(FileRow.removed_at_s.is_(None))
        with self._database.read() as session:
            known = select(BlobRow.key).where(BlobRow.key.like("files/%"), BlobRow.state == WHOLE)
            there = set(session.scalars(known))
            return [sha256 for sha256 in session.scalars(asked) if file_key(sha256) not in there]

    def submodels_without(self) -> list[SubModelRow]:
        """Sub-models with a checkpoint or a trained model, none of which has a blob, and that no worker has now."""
        blobs = select(BlobRow.key).where(BlobRow.run_id == SubModelRow.run_id, BlobRow.submodel == SubModelRow.name)
        live = select(HybridRow.id).where(HybridRow.id == SubModelRow.hybrid_id, HybridRow.heartbeat_at_s.is_not(None))
        something = SubModelRow.checkpoint.is_not(None) | SubModelRow.artifact.is_not(None)
        return self._rows(select(SubModelRow).where(something, ~blobs.exists(), ~live.exists()))

    def confirm_of(self, run_id: str, submodel: str, kept: Mapping[str, str]) -> None:
        """Record that files of a sub-model are whole, by name and key."""
        with self._database.write() as session:
            for name in kept:
                keep_in(session, self._clock.utc_s(), run_id, submodel, {name: kept[name]}, name)

    def sizes(self, prefix: str = "", run_id: str | None = None) -> dict[str, int]:
        """Bytes of the blobs of one run or all whose names begin with `prefix`, by run; the library's under ""."""
        asked = select(BlobRow.run_id, func.sum(BlobRow.size_bytes)).group_by(BlobRow.run_id)
        asked = asked.where(BlobRow.name.startswith(prefix, autoescape=True))
        if run_id is not None:
            asked = asked.where(BlobRow.run_id == run_id)
        return {run_id: int(size) for run_id, size in self._all(asked)}

    def any(self) -> bool:
        """Whether there is any blob."""
        return self._value(select(BlobRow.key).limit(1)) is not None

    def doubt(self, key: str) -> None:
        """Note that a host could not read a blob: whoever has these bytes puts them again."""
        with self._database.write() as session:
            whole = (BlobRow.key == key) & (BlobRow.state == WHOLE)
            session.execute(update(BlobRow).where(whole).values(state=DOUBTED, at_s=self._clock.utc_s()))

    def leave_run(self, run_id: str, prefix: str = "", submodel: str | None = None) -> None:
        """Let the blobs of a run be deleted whose names begin with `prefix`; those that are coming go by age."""
        with self._database.write() as session:
            leave_in(session, self._clock.utc_s(), run_id, prefix, submodel)

    def leave_file(self, sha256: str) -> bool:
        """Let a file of the library be deleted, unless somebody imported it again."""
        with self._database.write() as session:
            file, row = session.get(FileRow, sha256), session.get(BlobRow, file_key(sha256))
            if file is not None and file.removed_at_s is None:
                return False
            if row is not None and row.state not in (COMING, GOING):
                row.assign({"state": LEAVING, "at_s": self._clock.utc_s()})
            return True

    def leave_unnamed(self) -> None:
        """Let blobs be deleted that are of no run and no file for long: their bytes came while these were deleted."""
        with self._database.write() as session:
            now_s = self._clock.utc_s()
            named = select(RunRow.id).where(RunRow.id == BlobRow.run_id).exists()
            listed = select(FileRow.sha256).where(FileRow.sha256 == func.substr(BlobRow.key, len(file_key("")) + 1))
            alone = BlobRow.state.in_(THERE) & (BlobRow.at_s < now_s - LOST_AFTER_S) & ~named & ~listed.exists()
            session.execute(update(BlobRow).where(alone).values(state=LEAVING, at_s=now_s))

    def take_leaving(self, run_id: str | None = None) -> list[str]:
        """Keys to delete, which nobody else deletes now; with a `run_id` only of that run. Then call `forget`."""
        with self._database.read() as session:
            if session.scalar(self._due(session, run_id).limit(1)) is None:
                return []
        with self._database.write() as session:
            rows = list(session.scalars(self._due(session, run_id)))
            for row in rows:
                row.assign({"state": GOING, "at_s": self._clock.utc_s()})
            return [row.key for row in rows]

    def _due(self, session: Session, run_id: str | None) -> Select[BlobRow]:
        now_s = self._clock.utc_s()
        due = (
            (BlobRow.state == LEAVING)
            | ((BlobRow.state == GOING) & (BlobRow.at_s < now_s - STUCK_AFTER_S))
            | (BlobRow.state.in_((COMING, COME)) & (BlobRow.at_s < now_s - LOST_AFTER_S))
        )
        return select(BlobRow).where(due if run_id is None else due & (BlobRow.run_id == run_id)).limit(MOST_AT_ONCE)

    def forget(self, key: str) -> None:
        """Remove the row of a blob that was deleted."""
        with self._database.write() as session:
            session.execute(delete(BlobRow).where(BlobRow.key == key, BlobRow.state == GOING))

    def give_back(self, keys: Sequence[str]) -> None:
        """Let blobs that could not be deleted now be deleted later."""
        with self._database.write() as session:
            there = (BlobRow.key.in_(keys)) & (BlobRow.state == GOING)
            session.execute(update(BlobRow).where(there).values(state=LEAVING, at_s=self._clock.utc_s()))


def leave_in(session: Session, now_s: float, run_id: str, prefix: str = "", submodel: str | None = None) -> None:
    """`BlobRows.leave_run` inside the caller's transaction."""
    of_it = (BlobRow.run_id == run_id) & BlobRow.name.startswith(prefix, autoescape=True)
    of_it &= BlobRow.state.not_in((COMING, GOING))
    if submodel is not None:
        of_it &= BlobRow.submodel == submodel
    session.execute(update(BlobRow).where(of_it).values(state=LEAVING, at_s=now_s))


def keep_in(
    session: Session, now_s: float, run_id: str, submodel: str, kept: Mapping[str, str], instead_of: str
) -> None:
    """Record inside the caller's transaction that the blobs of these names and keys are whole.

    Others of the sub-model whose names begin with `instead_of` leave. Raises `BlobsUnreachable` if one left meanwhile.
    """
    leave_in(session, now_s, run_id, instead_of, submodel)
    for key in kept.values():
        _confirm(session, key, now_s, LEAVING)


def _confirm(session: Session, key: str, now_s: float, *also: str) -> None:
    row = session.get(BlobRow, key, populate_existing=True)
    if row is None or row.state not in (COMING, COME, *THERE, *also):
        raise BlobsUnreachable("The file was taken for lost before it was whole")
    row.assign({"state": WHOLE, "at_s": now_s})
