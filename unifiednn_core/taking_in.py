"""How files come into the library: from an iterator, by an upload in pieces, or from a folder of the server."""

import secrets
import shutil
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Literal

from unifiednn_core import server_folders
from unifiednn_core.errors import BadInput, NotFound
from unifiednn_core.filenames import plain_name
from unifiednn_core.intake import client
from unifiednn_core.intake.report import FileReport
from unifiednn_core.observing import Observing
from unifiednn_core.presentation.files import file_view
from unifiednn_core.server_folders import ServerFile
from unifiednn_core.uploads import BLOCK_BYTES, Uploads, UploadView
from unifiednn_core.views.runs import FileView

Kind = Literal["model", "weights", "data", "checkpoint"]
KINDS: tuple[Kind, ...] = ("model", "weights", "data", "checkpoint")
"""Of files in the library."""


class TakingIn(Observing):
    """Files from outside. Each waits in the quarantine until a process of its own has looked at it."""

    def files(self) -> tuple[FileView, ...]:
        """Models and data sets of the library, the newest first."""
        library = self._store.library
        rows = library.files() if self._sees_all else library.files_of(self._person)
        return tuple(file_view(row) for row in rows)

    def import_file(self, filename: str, chunks: Iterable[bytes], kinds: Sequence[str] = KINDS) -> FileView:
        """Take a file of one of `kinds` into the library; raises `BadInput`, and then nothing is kept."""
        waiting = self.home.quarantine / secrets.token_hex(8)
        try:
            with waiting.open("wb") as file:
                file.writelines(chunks)
            return self._take_in(waiting, plain_name(filename), kinds)
        except OSError as error:
            raise BadInput.of(
                "File not stored",
                field=filename,
                message=f"The file could not be written: {error.strerror}.",
                remedy=f"{shutil.disk_usage(self.home.root).free // 1024**2} MiB are free in the home folder.",
            ) from None
        finally:
            waiting.unlink(missing_ok=True)

    def begin_upload(
        self, filename: str, size_bytes: int, sha256: str | None = None, kinds: Sequence[str] = KINDS
    ) -> UploadView:
        """Announce a file that comes in pieces; raises `BadInput` where it cannot be taken."""
        return self._uploads.begin(filename, size_bytes, sha256, kinds, self._person)

    def upload(self, upload_id: str) -> UploadView:
        """An upload that is under way; raises `NotFound`."""
        return self._uploads.get(upload_id, None if self._sees_all else self._person)

    async def append_upload(self, upload_id: str, offset_bytes: int, chunks: AsyncIterator[bytes]) -> UploadView:
        """Write the next piece; raises `NotFound`, `BadInput`, and `UploadConflict` where it does not fit on."""
        self.upload(upload_id)
        return await self._uploads.append(upload_id, offset_bytes, chunks)

    def finish_upload(self, upload_id: str) -> FileView:
        """Take an upload that is whole into the library.

        Raises `BadInput`, and then nothing is kept; `IntakeFailed`, and then it can be tried again; `UploadConflict`
        where it is not whole yet; `NotFound`.
        """
        self.upload(upload_id)
        with self._uploads.finishing(upload_id) as (upload, path):
            return self._take_in(path, upload.filename, upload.kinds)

    def drop_upload(self, upload_id: str) -> None:
        """Forget an upload; raises `NotFound`."""
        self.upload(upload_id)
        self._uploads.drop(upload_id)

    def server_files(self, suffixes: Sequence[str] = ()) -> tuple[ServerFile, ...]:
        """Files in the folders that this server's operator allows to be read; none where there is no such folder."""
        return server_folders.listing(suffixes)

    def import_server_file(self, name: str, kinds: Sequence[str] = KINDS) -> FileView:
        """Copy a file of `server_files` into the library; raises `NotFound` and `BadInput`."""
        if all(file.name != name for file in server_folders.listing()):
            raise NotFound("There is no such file in the folders of the server. Choose one that is listed.")
        with server_folders.open_file(name) as file:
            return self.import_file(name, _blocks(file), kinds)

    # -- inside

    @property
    def _uploads(self) -> Uploads:
        return Uploads(self.home.quarantine)

    def _take_in(self, path: Path, filename: str, kinds: Sequence[str]) -> FileView:
        converted = self.home.quarantine / f"{secrets.token_hex(8)}.converted"
        try:
            report = client.inspect(path, filename, convert_to=converted)
            return self._keep(report, converted if report.converted else path, filename, kinds)
        finally:
            converted.unlink(missing_ok=True)

    def _keep(self, report: FileReport, path: Path, filename: str, kinds: Sequence[str]) -> FileView:
        errors = [finding for finding in report.findings if finding.severity == "error"]
        if errors:
            raise BadInput(errors)
        if report.kind not in kinds:
            raise BadInput.of(
                "Another kind of file",
                field=filename,
                message=f"This file holds {report.kind}; {' or '.join(kinds)} is wanted here.",
                remedy="Data sets hold exactly the entries 'inputs' and 'targets'.",
            )
        place = self.home.file(report.sha256)
        place.parent.mkdir(parents=True, exist_ok=True)
        path.replace(place)
        self._remember(report, filename)
        return next(view for view in self.files() if view.sha256 == report.sha256)


def _blocks(file: BinaryIO) -> Iterator[bytes]:
    while block := file.read(BLOCK_BYTES):
        yield block
