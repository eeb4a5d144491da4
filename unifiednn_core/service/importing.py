"""Imports files into the library of one person: the intake process inspects them; they are stored by content."""

import hashlib
import secrets
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Literal

from unifiednn_core.base import files as durable
from unifiednn_core.base.errors import BadInput
from unifiednn_core.base.files import safe_file_name
from unifiednn_core.base.paths import Home
from unifiednn_core.data.values import AS_STORED, ImportOptions, part_path
from unifiednn_core.preflight import client
from unifiednn_core.preflight.report import FileReport
from unifiednn_core.service.quotas import Room
from unifiednn_core.service.roles import Actor
from unifiednn_core.spec.columns import NO_TABLE_OPTIONS, WORDS, TableImportOptions
from unifiednn_core.store.library import Library
from unifiednn_core.views.library import Origin
from unifiednn_core.views.run_rows import file_view
from unifiednn_core.views.runs import FileView

Kind = Literal["model", "weights", "data", "checkpoint", "tokenizer"]
KINDS: tuple[Kind, ...] = ("model", "weights", "data", "checkpoint", "tokenizer")
"""Kinds of files in the library."""
BLOCK_BYTES = 1024**2
_COLUMNS = {"sha256", "kind", "format", "size_bytes", "facts"}


class FileImporter:
    """The library of one person, and the only way to add files to it."""

    def __init__(self, home: Home, library: Library, actor: Actor, room: Room):
        self._home, self._library, self._actor, self._room = home, library, actor, room

    def files(self) -> tuple[FileView, ...]:
        """Models and data sets that this person may use, the newest first."""
        rows = self._library.files(self._actor.id, only_own=self._actor.sees_only_own)
        return tuple(file_view(row) for row in rows)

    def references(self) -> frozenset[str]:
        """The same files as `sha256:...`, the way specs name them."""
        return frozenset(f"sha256:{file.sha256}" for file in self.files())

    def import_chunks(
        self, filename: str, chunks: Iterable[bytes], kinds: Sequence[str] = KINDS, options: ImportOptions = AS_STORED
    ) -> FileView:
        """Import a file of one of `kinds`; raises `BadInput`, and then nothing is kept."""
        waiting = self._home.quarantine / secrets.token_hex(8)
        try:
            with waiting.open("wb") as file:
                file.writelines(chunks)
            return self.import_moved(waiting, safe_file_name(filename), kinds, options)
        except OSError as error:
            message = f"The file could not be written: {error.strerror}."
            remedy = f"{shutil.disk_usage(self._home.root).free // 1024**2} MiB are free in the home folder."
            raise BadInput.of("File not stored", filename, message, remedy) from None
        finally:
            waiting.unlink(missing_ok=True)

    def import_path(self, path: Path, kinds: Sequence[str] = KINDS, sha256: str | None = None) -> FileView:
        """Import a copy of a file of this machine; raises `BadInput`, also if its content no longer has this hash."""
        content = hashlib.sha256()

        def chunks() -> Iterator[bytes]:
            with path.open("rb") as file:
                while chunk := file.read(BLOCK_BYTES):
                    content.update(chunk)
                    yield chunk
            if sha256 not in (None, content.hexdigest()):
                message = f"{path} has changed since it was checked."
                raise BadInput.of("Changed file", path.name, message, "Submit again once it is written.")

        return self.import_chunks(path.name, chunks(), kinds)

    def import_moved(
        self,
        path: Path,
        filename: str,
        kinds: Sequence[str],
        options: ImportOptions = AS_STORED,
        origin: Origin | None = None,
    ) -> FileView:
        """Import a file by moving it out of the quarantine; returns its first part if it has several.

        `origin` says from which run it was taken. Raises `BadInput`, also beyond the quota, and `IntakeFailed`.
        """
        self._check_files_of(options.table)
        converted = self._home.quarantine / f"{secrets.token_hex(8)}.converted"
        try:
            report = client.inspect(path, filename, convert_to=converted, options=options, home=self._home)
            errors = [finding for finding in report.findings if finding.severity == "error"]
            if errors:
                raise BadInput(errors)
            if report.kind not in kinds:
                message = f"This file holds {report.kind}, but {' or '.join(kinds)} is needed here."
                remedy = "Data sets hold exactly the entries 'inputs' and 'targets'."
                raise BadInput.of("Another kind of file", filename, message, remedy)
            self._room.require(filename, sum(one.size_bytes for one in (report, *report.others)))
            for other in report.others:
                self._keep(part_path(converted, other.part), other, part_name(filename, other.part))
            self._keep(converted if report.converted else path, report, part_name(filename, report.part), origin)
        finally:
            for left in self._home.quarantine.glob(f"{converted.name}*"):
                left.unlink(missing_ok=True)
        return self.file(report.sha256)

    def _check_files_of(self, wish: TableImportOptions) -> None:
        """Raise `BadInput` if a file that a wish names is not in this person's library."""
        if wish == NO_TABLE_OPTIONS:
            return
        held = {file.sha256: file for file in self.files()}
        needed = {wish.tokenizer: "tokenizer", wish.like: "data"}
        plans = [wish.plan]
        if wish.like in held and (seen := held[wish.like].preview) is not None:
            plans.append(seen.notes.plan)
        needed |= {sha256: "tokenizer" for plan in plans if plan is not None for sha256 in plan.tokenizers()}
        for sha256, kind in needed.items():
            if sha256 not in ("", WORDS) and (sha256 not in held or held[sha256].kind != kind):
                what = "tokenizer" if kind == "tokenizer" else "data set"
                message = f"There is no {what} '{sha256[:12]}' in the library."
                raise BadInput.of("Not in the library", "plan", message, f"Import the {what} first.")

    def _keep(self, path: Path, report: FileReport, filename: str, origin: Origin | None = None) -> None:
        """Move a file into the library; while that goes on, nobody deletes the same bytes."""
        with durable.folder_lock(self._home.files):
            self._library.announce(report.sha256, report.model_dump(include=_COLUMNS - {"sha256"}))
            durable.move(path, self._home.file(report.sha256))
            self.remember(report, filename, origin)

    def remember(self, report: FileReport, filename: str, origin: Origin | None = None) -> None:
        """List a stored file in this person's library."""
        told = None if origin is None else asdict(origin)
        columns = report.model_dump(include=_COLUMNS)
        self._library.add_file(filename=filename, owner=self._actor.id, origin=told, **columns)

    def file(self, sha256: str) -> FileView:
        """One file that this person has imported."""
        return next(view for view in self.files() if view.sha256 == sha256)


def part_name(filename: str, part: str) -> str:
    """Name of a part of a file in the library: `mnist-train.safetensors`; the file's own name without a part."""
    return f"{filename.partition('.')[0] or filename}-{part}.safetensors" if part else filename
