"""Uploads that go on after a cut: where their bytes wait until they are whole.

Each upload is two files in the quarantine: `ID`, its bytes so far, and `ID.json`, what was said at its beginning.
How much is there is the size of the first, so that neither a cut connection nor a killed server loses anything.
An upload has one writer at a time, kept by a lock on its file that ends with the process that holds it.
"""

import asyncio
import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO

from unifiednn_core import durable
from unifiednn_core.errors import BadInput, NotFound, UploadConflict
from unifiednn_core.filenames import plain_name

QUOTA_VARIABLE = "UNIFIEDNN_QUARANTINE_BYTES"
QUOTA_BYTES = 32 * 1024**3
SPARE_BYTES = 256 * 1024**2
"""What stays free on the disk, for the database and checkpoints."""
STALE_S = 24 * 3600.0
BLOCK_BYTES = 1024**2
_ID = re.compile(r"[0-9a-f]{32}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadView:
    """One upload that is under way."""

    upload_id: str
    filename: str
    size_bytes: int
    offset_bytes: int
    """How many bytes are there; the next one has this place."""
    sha256: str | None
    """Of the whole, where the sender told it."""
    kinds: tuple[str, ...]
    """What it may turn out to be."""
    owner: str


@dataclass(frozen=True, slots=True)
class Uploads:
    """The uploads of one quarantine folder. Safe to share between threads and processes."""

    folder: Path

    def begin(
        self, filename: str, size_bytes: int, sha256: str | None, kinds: Sequence[str], owner: str = ""
    ) -> UploadView:
        """Make room for an upload; raises `BadInput` where its name, size or hash cannot be, or there is no room."""
        name = plain_name(filename)
        if sha256 is not None and not _SHA256.fullmatch(sha256):
            raise _wrong(name, "This is no SHA-256.", "Give 64 hexadecimal digits in lower case, or leave it out.")
        if size_bytes < 1:
            raise _wrong(name, "This file is empty.", "Choose the file that you mean.")
        upload = UploadView(
            upload_id=secrets.token_hex(16),
            filename=name,
            size_bytes=size_bytes,
            offset_bytes=0,
            sha256=sha256,
            kinds=tuple(kinds),
            owner=owner,
        )
        with self._alone():  # so that two that begin at once do not count on the same room
            self.sweep()
            self._require_room(name, size_bytes)
            self._data(upload.upload_id).touch()
            document = {key: value for key, value in asdict(upload).items() if key != "offset_bytes"}
            durable.write_text(self._notes(upload.upload_id), json.dumps(document))
        return upload

    def get(self, upload_id: str, owner: str | None = None) -> UploadView:
        """An upload and how much of it is there; with an `owner`, only one of his. Raises `NotFound`."""
        try:
            if not _ID.fullmatch(upload_id):
                raise FileNotFoundError
            document = json.loads(self._notes(upload_id).read_text(encoding="utf-8"))
            upload = UploadView(**document | {"kinds": tuple(document["kinds"])}, offset_bytes=self._there(upload_id))
        except OSError:
            raise _gone() from None
        if owner is not None and upload.owner != owner:
            raise _gone()
        return upload

    async def append(self, upload_id: str, offset_bytes: int, chunks: AsyncIterator[bytes]) -> UploadView:
        """Write what arrives behind what is there; when this returns, it is on disk. Memory stays flat.

        Raises `UploadConflict` where `offset_bytes` is not its end or another writer is at it, `BadInput` where more
        arrives than was announced. Where the sender breaks off, what came until then is kept.
        """
        upload = self.get(upload_id)
        with self._writing(upload_id) as file:
            there = os.fstat(file.fileno()).st_size
            if there != offset_bytes:
                message = f"{there} bytes are there, and these would begin at {offset_bytes}. Send from {there} on."
                raise UploadConflict(message, there)
            waiting = bytearray()
            try:
                async for chunk in chunks:
                    there += len(chunk)
                    if there > upload.size_bytes:
                        message = f"More arrives than the {upload.size_bytes:,} bytes that were announced."
                        raise _wrong(upload.filename, message, "Begin anew with the size that the file has now.")
                    waiting += chunk
                    if len(waiting) >= BLOCK_BYTES:
                        block, waiting = waiting, bytearray()
                        await asyncio.to_thread(file.write, block)
            finally:
                await asyncio.to_thread(_settle, file, waiting)
        return self.get(upload_id)

    @contextmanager
    def finishing(self, upload_id: str) -> Iterator[tuple[UploadView, Path]]:
        """Hold the whole upload and its file; after this it is gone, taken or refused.

        Where anything but `BadInput` happens, such as a full disk, it stays, and can be finished again. Raises
        `UploadConflict` where it is not whole yet, and then it stays; `BadInput` where the hash is another.
        """
        upload = self.get(upload_id)
        with self._writing(upload_id):
            upload = self.get(upload_id)
            if upload.offset_bytes != upload.size_bytes:
                missing = upload.size_bytes - upload.offset_bytes
                raise UploadConflict(f"{missing:,} bytes are missing. Send them first.", upload.offset_bytes)
            try:
                _require_hash(upload, self._data(upload_id))
                yield upload, self._data(upload_id)
            except BadInput:
                self.drop(upload_id)
                raise
            self.drop(upload_id)

    def drop(self, upload_id: str) -> None:
        """Forget an upload; safe to call again."""
        if _ID.fullmatch(upload_id):
            self._notes(upload_id).unlink(missing_ok=True)
            self._data(upload_id).unlink(missing_ok=True)

    def sweep(self) -> None:
        """Remove what nobody went on with for a day."""
        for file in self.folder.iterdir():
            stale = time.time() - STALE_S
            if file.suffix != ".json" and _changed_at_s(file) < stale:
                file.unlink(missing_ok=True)
                file.with_suffix(".json").unlink(missing_ok=True)

    # -- inside

    def _require_room(self, name: str, size_bytes: int) -> None:
        reserved = there = 0
        for file in self.folder.iterdir():
            if file.suffix != ".json" and file.exists():
                here = file.stat().st_size
                there, reserved = there + here, reserved + max(here, self._announced(file.name))
        free = shutil.disk_usage(self.folder).free - SPARE_BYTES - (reserved - there)
        room = min(quota_bytes() - reserved, free)
        if size_bytes > room:
            # How much room there is would tell what others are sending.
            message = f"There is no room now for the {size_bytes / 1024**2:,.1f} MiB of this file."
            raise _wrong(name, message, f"Try again later, or have {QUOTA_VARIABLE} raised.")

    def _announced(self, upload_id: str) -> int:
        try:
            return self.get(upload_id).size_bytes
        except NotFound:
            return 0

    @contextmanager
    def _alone(self) -> Iterator[None]:
        handle = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

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
                message = "Another connection is sending this file. Go on when it has ended."
                raise UploadConflict(message, self._there(upload_id)) from None
            yield file

    def _data(self, upload_id: str) -> Path:
        return self.folder / upload_id

    def _notes(self, upload_id: str) -> Path:
        return self.folder / f"{upload_id}.json"

    def _there(self, upload_id: str) -> int:
        return self._data(upload_id).stat().st_size


def quota_bytes() -> int:
    """How much all uploads together may hold; raises `BadInput` where the environment gives no number."""
    given = os.environ.get(QUOTA_VARIABLE, str(QUOTA_BYTES))
    if not given.isascii() or not given.isdigit():
        raise _wrong(QUOTA_VARIABLE, f"'{given}' is no number of bytes.", "Give a whole number, or unset it.")
    return int(given)


def _require_hash(upload: UploadView, path: Path) -> None:
    if upload.sha256 is None:
        return
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != upload.sha256:
        message = f"What arrived has the SHA-256 {found[:12]}…, and {upload.sha256[:12]}… was announced."
        raise _wrong(upload.filename, message, "Nothing was kept. Send the file once more.")


def _settle(file: BinaryIO, rest: bytearray) -> None:
    try:
        file.write(rest)
        file.flush()
        os.fsync(file.fileno())
    except OSError as error:
        message = f"The file could not be written: {error.strerror}."
        raise _wrong("upload", message, "Free space in the home folder, then go on.") from None


def _changed_at_s(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:
        return time.time()  # somebody else removed it


def _wrong(field: str, message: str, remedy: str) -> BadInput:
    return BadInput.of("Upload", field=field, message=message, remedy=remedy)


def _gone() -> NotFound:
    return NotFound("There is no such upload, or not any more. Begin it anew.")
