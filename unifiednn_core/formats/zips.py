"""Untrusted zip archives: the directory is bounded before it is parsed."""

import struct
import zipfile
from pathlib import Path

from unifiednn_core.base.errors import HostileFile

MAX_DIRECTORY_BYTES = 32 * 1024**2
MAX_MEMBERS = 200_000
FREE_UNPACKED_BYTES = 256 * 1024**2
MAX_UNPACKED_RATIO = 100
_END, _END_BYTES, _MAX_COMMENT_BYTES = b"PK\x05\x06", 22, 2**16
_LOCATOR, _LOCATOR_BYTES, _END_64_BYTES = b"PK\x06\x07", 20, 56
_ENCRYPTED = 1


def is_zip(path: Path) -> bool:
    """Whether the file begins as zip archives do."""
    with path.open("rb") as file:
        return file.read(4) in (b"PK\x03\x04", _END)


def members(path: Path) -> list[zipfile.ZipInfo]:
    """List all entries; raises `HostileFile` for too many or encrypted ones, `BadZipFile` for other files."""
    if _directory_bytes(path) > MAX_DIRECTORY_BYTES:
        raise HostileFile(f"The archive lists more than {MAX_MEMBERS:,} files.")
    with zipfile.ZipFile(path) as archive:
        infos = archive.infolist()
    if len(infos) > MAX_MEMBERS:
        raise HostileFile(f"The archive lists {len(infos):,} files; at most {MAX_MEMBERS:,} are read.")
    if any(not info.filename or "\0" in info.orig_filename for info in infos):
        raise HostileFile("The archive lists a file without a name, or with a NUL in its name.")
    if any(info.flag_bits & _ENCRYPTED for info in infos):
        raise HostileFile("The archive is encrypted. Pack it without a password.")
    return infos


def names(path: Path) -> list[str]:
    """List the names in an archive; empty if the file is not one. Raises `HostileFile` as `members`."""
    try:
        return [info.filename for info in members(path)] if is_zip(path) else []
    except HostileFile:
        raise
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return []


def check_expansion(infos: list[zipfile.ZipInfo], size_bytes: int) -> int:
    """Return the unpacked size of all compressed entries; raises `HostileFile` if the file is too small for it."""
    unpacked_bytes = sum(info.file_size for info in infos if info.compress_type != zipfile.ZIP_STORED)
    if unpacked_bytes > most_unpacked_bytes(size_bytes):
        raise HostileFile(f"The file would unpack to {unpacked_bytes:,} bytes, far more than data compresses.")
    return unpacked_bytes


def most_unpacked_bytes(size_bytes: int) -> int:
    """Number of bytes that a file of this size may unpack to."""
    return max(FREE_UNPACKED_BYTES, MAX_UNPACKED_RATIO * size_bytes)


def content_offset(path: Path, info: zipfile.ZipInfo) -> int:
    """Find the first byte of an entry; raises `BadZipFile`."""
    with path.open("rb") as file:
        file.seek(info.header_offset)
        head = file.read(30)
    if len(head) < 30 or head[:4] != b"PK\x03\x04":
        raise zipfile.BadZipFile("an entry has no header")
    name_bytes, extra_bytes = struct.unpack_from("<HH", head, 26)
    return info.header_offset + 30 + int(name_bytes) + int(extra_bytes)


def _directory_bytes(path: Path) -> int:
    """Read the length of the directory from the end record, in either of its two forms; raises `BadZipFile`."""
    size_bytes = path.stat().st_size
    with path.open("rb") as file:
        begin = file.seek(max(0, size_bytes - _END_BYTES - _MAX_COMMENT_BYTES - _LOCATOR_BYTES))
        tail = file.read()
        last = len(tail) - _END_BYTES
        at = last if last >= 0 and tail[last : last + 4] == _END else tail.rfind(_END)
        if at < 0:
            raise zipfile.BadZipFile("it has no end record")
        try:
            length, offset = map(int, struct.unpack_from("<LL", tail, at + 12))
            if at >= _LOCATOR_BYTES and tail[at - _LOCATOR_BYTES : at - _LOCATOR_BYTES + 4] == _LOCATOR:
                file.seek(int(struct.unpack_from("<Q", tail, at - _LOCATOR_BYTES + 8)[0]))
                length = int(struct.unpack_from("<Q", file.read(_END_64_BYTES), 40)[0])
            elif offset + length < begin + at:  # zipfile would read the archive in a cut archive
                raise zipfile.BadZipFile("its directory is that of an archive inside it, so it is cut short")
        except (struct.error, OSError, OverflowError):
            raise zipfile.BadZipFile("its end record is cut short") from None
    return length
