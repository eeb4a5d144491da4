"""Imported model and data files, drafts of runs, and measured memory."""

from collections.abc import Iterable
from typing import Any

from sqlalchemy import select

from unifiednn_core.base.clock import Clock
from unifiednn_core.base.errors import NotFound
from unifiednn_core.store.database import Database
from unifiednn_core.store.schema import DraftRow, FileOwnerRow, FileRow, MeasuredMemoryRow


class Library:
    """Files and drafts."""

    def __init__(self, database: Database, clock: Clock):
        self._database, self._clock = database, clock

    def add_file(self, *, sha256: str, filename: str, owner: str = "", **columns: Any) -> None:
        """Add a file that belongs to `owner`, or give one of the same bytes this owner's newest name.

        `columns` are the other columns of `FileRow`. Other owners keep their names; all keep their first times.
        """
        with self._database.write() as session:
            first = {"filename": filename, "created_at_s": self._clock.utc_s()}
            own = session.get(FileOwnerRow, (sha256, owner))
            if own is None:
                session.add(FileOwnerRow(sha256=sha256, owner=owner, **first))
            else:
                own.filename = filename
            known = session.get(FileRow, sha256)
            if known is None:
                session.add(FileRow(sha256=sha256, **first, **columns))
            else:
                known.assign(columns)

    def files(self, reader: str = "", *, only_own: bool = False) -> list[FileRow]:
        """All files, the newest first, under the names that `reader` gave them, else their first names.

        With `only_own`, only files of `reader`, with the time at which this person first had each. No session holds
        the rows.
        """
        own = (FileOwnerRow.sha256 == FileRow.sha256) & (FileOwnerRow.owner == reader)
        found = select(FileRow, FileOwnerRow).join(FileOwnerRow, own, isouter=not only_own)
        first_s = FileOwnerRow.created_at_s if only_own else FileRow.created_at_s
        with self._database.read() as session:
            rows = []
            for file, mine in session.execute(found.order_by(first_s.desc(), FileRow.sha256)):
                session.expunge(file)
                if mine is not None:
                    file.filename = mine.filename
                if only_own:
                    file.created_at_s = mine.created_at_s
                rows.append(file)
            return rows

    def names_by_owner(self, sha256: str) -> dict[str, str]:
        """Owners of a file and the name that each gave it; empty for an unknown file."""
        with self._database.read() as session:
            rows = session.scalars(select(FileOwnerRow).where(FileOwnerRow.sha256 == sha256))
            return {row.owner: row.filename for row in rows}

    def save_draft(self, draft_id: str, document: dict[str, Any], owner: str = "") -> None:
        """Save a draft; one of the same id is replaced and keeps its owner."""
        with self._database.write() as session:
            known = session.get(DraftRow, draft_id)
            owner = owner if known is None else known.owner
            now_s = self._clock.utc_s()
            session.merge(DraftRow(id=draft_id, owner=owner, document=document, changed_at_s=now_s, run_id=None))

    def draft(self, draft_id: str, owner: str | None = None) -> dict[str, Any]:
        """Document of a draft; raises `NotFound`, with `owner` also for drafts of others."""
        with self._database.read() as session:
            row = session.get(DraftRow, draft_id)
            if row is None or row.run_id is not None or (owner is not None and row.owner != owner):
                raise NotFound(f"There is no draft '{draft_id}'. Start a new one on the Build page.")
            return row.document

    def drafts(self, owner: str) -> list[DraftRow]:
        """Unfinished drafts of one person, the last changed first. No session holds the rows."""
        unfinished = select(DraftRow).where(DraftRow.owner == owner, DraftRow.run_id.is_(None))
        with self._database.read() as session:
            rows = list(session.scalars(unfinished.order_by(DraftRow.changed_at_s.desc(), DraftRow.id)))
            session.expunge_all()
            return rows

    def finish_draft(self, draft_id: str, run_id: str, owner: str | None = None) -> None:
        """Keep only which run a draft became, with `owner` only if it is theirs; ignores unknown ids."""
        with self._database.write() as session:
            row = session.get(DraftRow, draft_id)
            if row is not None and owner in (None, row.owner):
                row.run_id, row.document = run_id, {}

    def run_of_draft(self, draft_id: str, owner: str | None = None) -> str | None:
        """The run that a draft became, with `owner` only if it is theirs; None for any other."""
        with self._database.read() as session:
            row = session.get(DraftRow, draft_id)
            return row.run_id if row is not None and owner in (None, row.owner) else None

    def delete_draft(self, draft_id: str, owner: str | None = None) -> None:
        """Delete a draft, with `owner` only if it is theirs; ignores unknown ids."""
        with self._database.write() as session:
            row = session.get(DraftRow, draft_id)
            if row is not None and owner in (None, row.owner):
                session.delete(row)


class Measured:
    """Measured memory, for predictions."""

    def __init__(self, database: Database, clock: Clock):
        self._database, self._clock = database, clock

    def recall(self, keys: Iterable[str]) -> dict[str, int]:
        """Measured bytes by key; unknown keys are left out."""
        wanted = set(keys)
        with self._database.read() as session:
            rows = session.scalars(select(MeasuredMemoryRow).where(MeasuredMemoryRow.key.in_(wanted)))
            return {row.key: row.size_bytes for row in rows}

    def remember(self, key: str, size_bytes: int, source: str) -> None:
        """Keep a measurement by `source` if it is the largest so far: any one sample may have missed the peak.

        A prediction that is too low kills a run; one that is too high only makes it wait. Sizes of 0 and empty keys are
        ignored.
        """
        if not key or size_bytes <= 0:
            return
        with self._database.write() as session:
            row = session.get(MeasuredMemoryRow, key)
            if row is None:
                row = MeasuredMemoryRow(key=key, size_bytes=size_bytes, source=source, times=0)
                session.add(row)
            if size_bytes > row.size_bytes:
                row.size_bytes, row.source = size_bytes, source
            row.times += 1
            row.at_s = self._clock.utc_s()
