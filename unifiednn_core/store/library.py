"""Model and data files that were taken in, and runs that are still being put together."""

from typing import Any

from sqlalchemy import select

from unifiednn_core.clock import Clock
from unifiednn_core.errors import NotFound
from unifiednn_core.store.database import Database
from unifiednn_core.store.schema import DraftRow, FileRow


class Library:
    """The part of the store that knows the files."""

    def __init__(self, database: Database, clock: Clock):
        self._database, self._clock = database, clock

    def add_file(
        self, *, sha256: str, kind: str, filename: str, format: str, size_bytes: int, facts: dict[str, Any]
    ) -> None:
        """Add a file, or give one of the same bytes its newest name."""
        with self._database.write() as session:
            session.merge(
                FileRow(
                    sha256=sha256,
                    kind=kind,
                    filename=filename,
                    format=format,
                    size_bytes=size_bytes,
                    facts=facts,
                    created_at_s=self._clock.utc_s(),
                )
            )

    def files(self) -> list[FileRow]:
        """All files, the newest first."""
        with self._database.read() as session:
            return list(session.scalars(select(FileRow).order_by(FileRow.created_at_s.desc(), FileRow.sha256)))

    def save_draft(self, draft_id: str, document: dict[str, Any]) -> None:
        """Keep a draft; one of the same id is replaced."""
        with self._database.write() as session:
            session.merge(DraftRow(id=draft_id, document=document, changed_at_s=self._clock.utc_s()))

    def draft(self, draft_id: str) -> dict[str, Any]:
        """Document of a draft; raises `NotFound`."""
        with self._database.read() as session:
            row = session.get(DraftRow, draft_id)
            if row is None:
                raise NotFound(f"There is no draft '{draft_id}'. Start a new one on the Build page.")
            return row.document

    def delete_draft(self, draft_id: str) -> None:
        """Forget a draft; nothing happens where there is none."""
        with self._database.write() as session:
            row = session.get(DraftRow, draft_id)
            if row is not None:
                session.delete(row)
