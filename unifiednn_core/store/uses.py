"""Which files of the library the sub-models of runs name."""

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from unifiednn_core.base.errors import BadInput
from unifiednn_core.store.schema import FileRow, FileUseRow

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
