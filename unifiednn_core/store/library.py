"""Imported model and data files, drafts of runs, and measured memory."""

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from unifiednn_core.base.errors import BadInput, NotFound
from unifiednn_core.store.database import Repository
from unifiednn_core.store.schema import (
    DraftRow,
    FileOwnerRow,
    FileRow,
    FileUseRow,
    MeasuredMemoryRow,
    RunRow,
    SubModelRow,
)


class Library(Repository):
    """Files and drafts."""

    def add_file(
        self, *, sha256: str, filename: str, owner: str = "", origin: Mapping[str, Any] | None = None, **columns: Any
    ) -> None:
        """Add a file that belongs to `owner`, or give one of the same bytes this owner's newest name.

        `columns` are the other columns of `FileRow`, `origin` says from which run it was taken. Other owners keep their
        names; all keep their first times.
        """
        with self._database.write() as session:
            first = {"filename": filename, "created_at_s": self._clock.utc_s()}
            own = session.get(FileOwnerRow, (sha256, owner))
            if own is None:
                session.add(FileOwnerRow(sha256=sha256, owner=owner, origin=dict(origin or {}), **first))
            else:
                own.filename = filename
            known = session.get(FileRow, sha256)
            if known is None:
                session.add(FileRow(sha256=sha256, **first, **columns))
            else:
                known.assign({**columns, **(first if known.removed_at_s is not None else {}), "removed_at_s": None})

    def announce(self, sha256: str, columns: Mapping[str, Any]) -> None:
        """Note, before its bytes are moved into the library, that a file comes: after a crash it is deleted again."""
        with self._database.write() as session:
            if session.get(FileRow, sha256) is None:
                now_s = self._clock.utc_s()
                session.add(FileRow(sha256=sha256, filename="", created_at_s=now_s, removed_at_s=now_s, **columns))

    def files(self, reader: str = "", *, only_own: bool = False) -> list[FileRow]:
        """All files, the newest first, under the names that `reader` gave them, else their first names.

        With `only_own`, only files of `reader`, with the time at which this person first had each. No session holds
        the rows.
        """
        own = (FileOwnerRow.sha256 == FileRow.sha256) & (FileOwnerRow.owner == reader)
        found = select(FileRow, FileOwnerRow).join(FileOwnerRow, own, isouter=not only_own)
        found = found.where(FileRow.removed_at_s.is_(None))
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

    def facts(self, sha256: str) -> dict[str, Any]:
        """Facts about a file; empty for an unknown one."""
        known = self._get(FileRow, sha256)
        return {} if known is None else known.facts

    def names_by_owner(self, sha256: str) -> dict[str, str]:
        """Owners of a file and the name that each gave it; empty for an unknown file."""
        rows = self._rows(select(FileOwnerRow).where(FileOwnerRow.sha256 == sha256))
        return {row.owner: row.filename for row in rows}

    def rename(self, sha256: str, filename: str, owner: str) -> None:
        """Give a file another name for this owner alone; raises `NotFound` if it is not theirs."""
        with self._database.write() as session:
            own = session.get(FileOwnerRow, (sha256, owner))
            if own is None:
                raise NotFound(f"There is no file '{sha256[:12]}' of yours in the library.")
            own.filename = filename

    def origins(self, owner: str | None) -> dict[str, dict[str, Any]]:
        """From which run files were taken, by SHA-256; with an `owner` only as this person knows it."""
        asked = select(FileOwnerRow.sha256, FileOwnerRow.origin)
        with self._database.read() as session:
            rows = session.execute(asked if owner is None else asked.where(FileOwnerRow.owner == owner))
            found = {sha256: origin for sha256, origin in rows if origin}
            named = {origin["run_id"] for origin in found.values()}
            there = set(session.scalars(select(RunRow.id).where(RunRow.id.in_(named), RunRow.removed_at_s.is_(None))))
            return {sha256: {**origin, "is_there": origin["run_id"] in there} for sha256, origin in found.items()}

    def taken_from(self, run_id: str, owner: str | None) -> list[str]:
        """Names of files that were taken from a run, with an `owner` only of theirs."""
        asked = select(FileOwnerRow.filename).where(FileOwnerRow.origin["run_id"].as_string() == run_id)
        return self._rows(asked if owner is None else asked.where(FileOwnerRow.owner == owner))

    def owner_counts(self) -> dict[str, int]:
        """How many people have each file."""
        asked = select(FileOwnerRow.sha256, func.count()).group_by(FileOwnerRow.sha256)
        return {row[0]: row[1] for row in self._all(asked)}

    def owned_bytes(self, owner: str | None = None) -> dict[str, dict[str, int]]:
        """Bytes of each owner by kind: `library`, `models`, `checkpoints` (the newest of each sub-model).

        What several people have counts for each of them. With an `owner` only of theirs, which reads nothing of others.
        """
        files = (
            select(FileOwnerRow.owner, func.sum(FileRow.size_bytes))
            .join(FileRow, FileRow.sha256 == FileOwnerRow.sha256)
            .group_by(FileOwnerRow.owner)
        )
        kept = (
            select(SubModelRow.owner, func.sum(SubModelRow.artifact_bytes), func.sum(SubModelRow.checkpoint_bytes))
            .where(SubModelRow.run_id.not_in(select(RunRow.id).where(RunRow.removed_at_s.is_not(None))))
            .group_by(SubModelRow.owner)
        )
        if owner is not None:
            files, kept = files.where(FileOwnerRow.owner == owner), kept.where(SubModelRow.owner == owner)
        found: dict[str, dict[str, int]] = {}
        with self._database.read() as session:
            for person, size_bytes in session.execute(files):
                found.setdefault(person, {})["library"] = int(size_bytes or 0)
            for person, models, checkpoints in session.execute(kept):
                found.setdefault(person, {}).update(models=int(models or 0), checkpoints=int(checkpoints or 0))
        return found

    def draft_documents(self, owner: str | None) -> dict[str, dict[str, Any]]:
        """Documents of all drafts by id, with an `owner` only of theirs."""
        asked = select(DraftRow.id, DraftRow.document).where(DraftRow.run_id.is_(None))
        rows = self._all(asked if owner is None else asked.where(DraftRow.owner == owner))
        return {row.id: row.document for row in rows}

    def save_draft(self, draft_id: str, document: dict[str, Any], owner: str = "") -> None:
        """Save a draft; one of the same id is replaced and keeps its owner."""
        with self._database.write() as session:
            known = session.get(DraftRow, draft_id)
            owner = owner if known is None else known.owner
            now_s = self._clock.utc_s()
            session.merge(DraftRow(id=draft_id, owner=owner, document=document, changed_at_s=now_s, run_id=None))

    def draft(self, draft_id: str, owner: str | None = None) -> dict[str, Any]:
        """Document of a draft; raises `NotFound`, with `owner` also for drafts of others."""
        row = self._get(DraftRow, draft_id)
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
        row = self._get(DraftRow, draft_id)
        return row.run_id if row is not None and owner in (None, row.owner) else None

    def delete_draft(self, draft_id: str, owner: str | None = None) -> None:
        """Delete a draft, with `owner` only if it is theirs; ignores unknown ids."""
        with self._database.write() as session:
            row = session.get(DraftRow, draft_id)
            if row is not None and owner in (None, row.owner):
                session.delete(row)


class Measured(Repository):
    """Measured memory, for predictions."""

    def recall(self, keys: Iterable[str]) -> dict[str, int]:
        """Measured bytes by key; unknown keys are left out."""
        wanted = set(keys)
        rows = self._rows(select(MeasuredMemoryRow).where(MeasuredMemoryRow.key.in_(wanted)))
        return {row.key: row.size_bytes for row in rows}

    def remember(self, key: str, size_bytes: int) -> None:
        """Keep a measurement if it is the largest so far: any one sample may have missed the peak.

        A prediction that is too low kills a run; one that is too high only makes it wait. Sizes of 0 and empty keys are
        ignored.
        """
        if not key or size_bytes <= 0:
            return
        with self._database.write() as session:
            row = session.get(MeasuredMemoryRow, key)
            if row is None or size_bytes > row.size_bytes:
                session.merge(MeasuredMemoryRow(key=key, size_bytes=size_bytes))


_BY_CONTENT = "sha256:"


def files_of(part: Mapping[str, Any]) -> dict[str, str]:
    """SHA-256 of the files that a sub-model of a stored spec names by content, by the entry that names them."""
    start = part.get("start_from") or {}
    named = {entry: part.get(entry) for entry in ("model", "train_data", "test_data")}
    named["start_from.file"] = start.get("file")
    return {
        entry: name.removeprefix(_BY_CONTENT)
        for entry, name in named.items()
        if isinstance(name, str) and name.startswith(_BY_CONTENT)
    }


def use_in(session: Session, run_id: str, parts: Iterable[Mapping[str, Any]]) -> None:
    """Note the files of these sub-models, inside the caller's transaction; raises `BadInput` if one was deleted.

    Deletions look for uses in a transaction, too, so no run is ever left without a file.
    """
    uses = [(part["name"], entry, sha256) for part in parts for entry, sha256 in files_of(part).items()]
    wanted = {sha256 for _, _, sha256 in uses}
    there = select(FileRow.sha256).where(FileRow.sha256.in_(wanted), FileRow.removed_at_s.is_(None))
    gone = wanted - set(session.scalars(there))
    for name, entry, sha256 in uses:
        if sha256 in gone:
            message = f"The library has no file '{sha256[:12]}' any more."
            raise BadInput.of("File deleted", f"submodels.{name}.{entry}", message, "Import it again.")
        session.merge(FileUseRow(sha256=sha256, run_id=run_id, submodel=name, entry=entry))
