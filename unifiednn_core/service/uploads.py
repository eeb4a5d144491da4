"""Resumable uploads, kept in the quarantine until they are complete.

Each upload has two files: `ID` holds the bytes so far, `ID.json` the announcement. The size of the first is the offset,
so a lost connection or a killed server loses nothing. A file lock, released when its process ends, admits one writer.
"""

import asyncio
import fcntl
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO

from unifiednn_core.base import files as durable
from unifiednn_core.base.errors import BadInput, NotFound, UploadConflict
from unifiednn_core.base.files import safe_file_name
from unifiednn_core.views.library import UploadView

QUOTA_BYTES = 32 * 1024**3
SPARE_BYTES = 256 * 1024**2
"""Space that stays free on the disk for the database and checkpoints."""
STALE_S = 24 * 3600.0
BLOCK_BYTES = 1024**2
_ID = re.compile(r"[0-9a-f]{32}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Uploads:
    """The uploads of one quarantine folder. Safe to share between threads and processes."""

    folder: Path

    def begin(
        self, filename: str, size_bytes: int, sha256: str | None, kinds: Sequence[str], owner: str = ""
    ) -> UploadView:
        """Reserve room for an upload; raises `BadInput` for an invalid name, size or hash, or if there is no room."""
        name = safe_file_name(filename)
        if sha256 is not None and not _SHA256.fullmatch(sha256):
            raise _wrong(name, "This is not a SHA-256.", "Give 64 hexadecimal digits in lower case, or leave it out.")
        if size_bytes < 1:
            raise _wrong(name, "This file is empty.", "Choose another file.")
        upload = UploadView(secrets.token_hex(16), name, size_bytes, 0, sha256, tuple(kinds), owner)
        with durable.folder_lock(self.folder, exclusive=True):  # two uploads must not reserve the same room
            self.sweep()
            self._require_room(name, size_bytes)
            self._data(upload.upload_id).touch()
            durable.write_text(self._notes(upload.upload_id), json.dumps(asdict(upload)))
        return upload

    def get(self, upload_id: str, owner: str | None = None) -> UploadView:
        """An upload and its offset; with an `owner`, only one of this person. Raises `NotFound`."""
        try:
            if not _ID.fullmatch(upload_id):
                raise FileNotFoundError
            document = json.loads(self._notes(upload_id).read_text(encoding="utf-8"))
            current = {"kinds": tuple(document["kinds"]), "offset_bytes": self._there(upload_id)}
            upload = UploadView(**document | current)
        except OSError:
            raise _gone() from None
        if owner is not None and upload.owner != owner:
            raise _gone()
        return upload

    async def append(self, upload_id: str, offset_bytes: int, chunks: AsyncIterator[bytes]) -> UploadView:
        """Append chunks, which are on disk when this returns. Memory stays flat.

        Raises `UploadConflict` for a wrong offset or while another writer is active, `BadInput` for more bytes than
        announced. Bytes that arrived before a lost connection are kept.
        """
        upload = self.get(upload_id)
        with self._writing(upload_id) as file:
            there = os.fstat(file.fileno()).st_size
            if there != offset_bytes:
                message = f"{there} bytes are there, but these would begin at {offset_bytes}. Send from {there} on."
                raise UploadConflict(message, there)
            waiting = bytearray()
            try:
                async for chunk in chunks:
                    there += len(chunk)
                    if there > upload.size_bytes:
                        message = f"More than the announced {upload.size_bytes:,} bytes arrived."
                        raise _wrong(upload.filename, message, "Begin again with the current size of the file.")
                    waiting += chunk
                    if len(waiting) >= BLOCK_BYTES:
                        block, waiting = waiting, bytearray()
                        await asyncio.to_thread(file.write, block)
            finally:
                await asyncio.to_thread(_settle, file, waiting)
        return self.get(upload_id)

    @contextmanager
    def finishing(self, upload_id: str, *, keep_refused: bool = False) -> Iterator[tuple[UploadView, Path]]:
        """Lock a complete upload and yield its file; delete it afterwards, also if refused, unless `keep_refused`.

        After other errors than `BadInput`, such as a full disk, it stays and can be finished again. Raises
        `UploadConflict` if bytes are missing, `BadInput` for another hash.
        """
        upload = self.get(upload_id)
        with self._writing(upload_id):
            upload = self.get(upload_id)
            if upload.offset_bytes != upload.size_bytes:
                missing = upload.size_bytes - upload.offset_bytes
                raise UploadConflict(f"{missing:,} bytes are missing. Send them first.", upload.offset_bytes)
            try:
                _require_hash(upload, self._data(upload_id))
            except BadInput:
                self.drop(upload_id)
                raise
            try:
                yield upload, self._data(upload_id)
            except BadInput:
                if not keep_refused:
                    self.drop(upload_id)
                raise
            self.drop(upload_id)

    def small(self, upload_id: str, most_bytes: int) -> bytes | None:
        """All bytes of a complete upload of at most this size; None for any other. Raises `NotFound`."""
        upload = self.get(upload_id)
        if upload.offset_bytes != upload.size_bytes or upload.size_bytes > most_bytes:
            return None
        with self._writing(upload_id):
            return self._data(upload_id).read_bytes()

    def drop(self, upload_id: str) -> None:
        """Delete an upload; idempotent."""
        if _ID.fullmatch(upload_id):
            self._notes(upload_id).unlink(missing_ok=True)
            self._data(upload_id).unlink(missing_ok=True)

    def sweep(self) -> None:
        """Delete files that are a day old: abandoned uploads, and leftovers of killed intake processes."""
        stale = time.time() - STALE_S
        for left in self.folder.iterdir():
            with suppress(OSError):  # one file that cannot be deleted must not block all uploads
                if left.suffix == ".json" or left.stat().st_mtime >= stale:
                    continue
                if left.is_dir() and not left.is_symlink():
                    shutil.rmtree(left, ignore_errors=True)
                else:
                    left.unlink(missing_ok=True)
                    left.with_suffix(".json").unlink(missing_ok=True)

    def _require_room(self, name: str, size_bytes: int) -> None:
        reserved = there = 0
        for file in self.folder.iterdir():
            if file.suffix != ".json" and file.exists():
                here = announced = file.stat().st_size
                with suppress(NotFound):  # a file of the intake process
                    announced = max(here, self.get(file.name).size_bytes)
                there, reserved = there + here, reserved + announced
        free = shutil.disk_usage(self.folder).free - SPARE_BYTES - (reserved - there)
        room = min(QUOTA_BYTES - reserved, free)
        if size_bytes > room:
            # The exact room would reveal what others are sending.
            message = f"There is no room now for the {size_bytes / 1024**2:,.1f} MiB of this file."
            raise _wrong(name, message, "Try again later, or ask an operator for a larger disk.")

    @contextmanager
    def _writing(self, upload_id: str) -> Iterator[BinaryIO]:
        try:
            file = os.fdopen(os.open(self._data(upload_id), os.O_WRONLY | os.O_APPEND), "ab")
        except OSError:
            raise _gone() from None
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                message = "Another connection is sending this file. Continue when it has ended."
                raise UploadConflict(message, self._there(upload_id)) from None
            yield file

    def _data(self, upload_id: str) -> Path:
        return self.folder / upload_id

    def _notes(self, upload_id: str) -> Path:
        return self.folder / f"{upload_id}.json"

    def _there(self, upload_id: str) -> int:
        return self._data(upload_id).stat().st_size


def _require_hash(upload: UploadView, path: Path) -> None:
    if upload.sha256 is None:
        return
    found = durable.file_sha256(path)
    if found != upload.sha256:
        message = f"The file has the SHA-256 {found[:12]}…, but {upload.sha256[:12]}… was announced."
        raise _wrong(upload.filename, message, "Nothing was kept. Send the file again.")


def _settle(file: BinaryIO, rest: bytearray) -> None:
    try:
        file.write(rest)
        file.flush()
        os.fsync(file.fileno())
    except OSError as error:
        message = f"The file could not be written: {error.strerror}."
        raise _wrong("upload", message, "Free space in the home folder, then continue.") from None


def _wrong(field: str, message: str, remedy: str) -> BadInput:
    return BadInput.of("Upload", field, message, remedy)


def _gone() -> NotFound:
    return NotFound("There is no such upload, or it has expired. Begin again.")
