"""Model and data files that were taken in, and runs that are still being put together."""

from typing import Any

from sqlalchemy import select

from unifiednn_core.clock import Clock
from unifiednn_core.errors import NotFound
from unifiednn_core.store.database import Database
from unifiednn_core.store.schema import DraftRow, FileOwnerRow, FileRow


class Library:
    """The part of the store that knows the files."""

    def __init__(self, database: Database, clock: Clock):
        self._database, self._clock = database, clock

    def add_file(
        self,
        *,
        sha256: str,
        kind: str,
        filename: str,
        format: str,
        size_bytes: int,
        facts: dict[str, Any],
        owner: str = "",
    ) -> None:
        """Add a file that belongs to `owner`, or give one of the same bytes its newest name."""
        with self._database.write() as session:
            now_s = self._clock.utc_s()
            session.merge(FileOwnerRow(sha256=sha256, owner=owner, filename=filename, created_at_s=now_s))
            session.merge(
                FileRow(
                    sha256=sha256,
                    kind=kind,
                    filename=filename,
                    format=format,
                    size_bytes=size_bytes,
                    facts=facts,
                    created_at_s=now_s,
                )
            )

    def files(self) -> list[FileRow]:
        """All files, the newest first."""
        with self._database.read() as session:
            return list(session.scalars(select(FileRow).order_by(FileRow.created_at_s.desc(), FileRow.sha256)))

    def files_of(self, owner: str) -> list[FileRow]:
        """Files of one person, the newest first, under this person's own names; no session holds them."""
        mine = select(FileRow, FileOwnerRow).join(FileOwnerRow, FileOwnerRow.sha256 == FileRow.sha256)
        mine = mine.where(FileOwnerRow.owner == owner).order_by(FileOwnerRow.created_at_s.desc(), FileRow.sha256)
        with self._database.read() as session:
            rows = []
            for file, own in session.execute(mine):
                session.expunge(file)
                file.filename, file.created_at_s = own.filename, own.created_at_s
                rows.append(file)
            return rows

    def names_by_owner(self, sha256: str) -> dict[str, str]:
        """To whom a file belongs, and what each calls it; empty where nobody has it."""
        with self._database.read() as session:
            rows = session.scalars(select(FileOwnerRow).where(FileOwnerRow.sha256 == sha256))
            return {row.owner: row.filename for row in rows}

    def save_draft(self, draft_id: str, document: dict[str, Any], owner: str = "") -> None:
        """Keep a draft; one of the same id is replaced, and stays whose it was."""
        with self._database.write() as session:
            known = session.get(DraftRow, draft_id)
            owner = owner if known is None else known.owner
            session.merge(DraftRow(id=draft_id, owner=owner, document=document, changed_at_s=self._clock.utc_s()))

    def draft(self, draft_id: str, owner: str | None = None) -> dict[str, Any]:
        """Document of a draft, with `owner` only where it is that person's own; raises `NotFound`."""
        with self._database.read() as session:
            row = session.get(DraftRow, draft_id)
            if row is None or (owner is not None and row.owner != owner):
                raise NotFound(f"There is no draft '{draft_id}'. Start a new one on the Build page.")
            return row.document

    def delete_draft(self, draft_id: str, owner: str | None = None) -> None:
        """Forget a draft; nothing happens where there is none, or with `owner` none of that person's own."""
        with self._database.write() as session:
            row = session.get(DraftRow, draft_id)
            if row is not None and owner in (None, row.owner):
                session.delete(row)
