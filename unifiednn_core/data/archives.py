"""Zip and tar archives of data, plain or gzipped, that may be hostile. Nothing is unpacked to the file system."""

import gzip
import io
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from unifiednn_core.base.errors import BadInput, HostileFile
from unifiednn_core.formats import zips
from unifiednn_core.formats.tensor_files import bad_file

DAMAGED = (zipfile.BadZipFile, gzip.BadGzipFile, EOFError, NotImplementedError, RuntimeError, zlib.error)
_GZIP, _BLOCK = b"\x1f\x8b", 512
_PLAIN, _FOLDER, _LONG_NAME, _PAX = (b"0", b"\0", b"7"), b"5", b"L", b"x"
_SKIPPED = (b"g",)
_MAX_NAME_BYTES = 2**16
_MOST_BYTES = 2**60
_LITTER = (".DS_Store", "Thumbs.db", "desktop.ini")


@dataclass(frozen=True, slots=True)
class Entry:
    """One file in an archive."""

    name: str
    size_bytes: int
    place: Any  # the record of a zip, or the offset in a tar

    @property
    def path(self) -> PurePosixPath:
        """Its name as a path."""
        return PurePosixPath(self.name)


@dataclass(frozen=True, slots=True)
class Archive:
    """Entries that are files, in their order in the archive, without what file managers leave."""

    path: Path
    entries: tuple[Entry, ...]
    source: Any  # the open zip, or the bytes of the tar

    def open(self, entry: Entry) -> IO[bytes]:
        """Open an entry to be read from its start; only one of a tar at a time."""
        if isinstance(self.source, zipfile.ZipFile):
            return self.source.open(entry.place)
        return io.BufferedReader(_Inside(self.source, entry.place, entry.size_bytes))

    def read(self, entry: Entry, most_bytes: int) -> bytes:
        """Read an entry; raises `HostileFile` if it is larger."""
        if entry.size_bytes > most_bytes:
            shown = entry.name[:80]
            raise HostileFile(f"The entry '{shown}' would unpack to {entry.size_bytes} bytes; {most_bytes} are read.")
        with self.open(entry) as file:
            content = file.read(entry.size_bytes)
        if len(content) < entry.size_bytes:
            raise EOFError("the archive is cut short")
        return content


class _Inside(io.RawIOBase):
    """A range of bytes of another file."""

    def __init__(self, file: IO[bytes], start: int, size_bytes: int):
        self._file, self._start, self._size_bytes, self._at = file, start, size_bytes, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, self._size_bytes)[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        self._file.seek(self._start + self._at)
        found = self._file.read(max(0, min(len(buffer), self._size_bytes - self._at)))
        buffer[: len(found)] = found
        self._at += len(found)
        return len(found)


class _Unpacked(io.RawIOBase):
    """The content of a gzip file, which is not read beyond what data compresses to; raises `HostileFile`."""

    def __init__(self, file: IO[bytes], size_bytes: int):
        """`size_bytes` is the size of the packed file."""
        self._file, self._most_bytes = gzip.GzipFile(fileobj=file), zips.most_unpacked_bytes(size_bytes)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        offset += self._file.tell() if whence == 1 else 0
        self._require(offset)
        return self._file.seek(offset)

    def readinto(self, buffer: Any) -> int:
        found = self._file.read(len(buffer))
        self._require(self._file.tell())
        buffer[: len(found)] = found
        return len(found)

    def _require(self, at: int) -> None:
        if at > self._most_bytes:
            raise HostileFile(f"The file would unpack to over {self._most_bytes:,} bytes, far more than data does.")


def unpacked(file: IO[bytes], size_bytes: int) -> IO[bytes]:
    """The content of a file of this size, which may be gzipped."""
    head = file.read(len(_GZIP))
    file.seek(0)
    return io.BufferedReader(_Unpacked(file, size_bytes)) if is_gzip(head) else file


def is_gzip(head: bytes) -> bool:
    """Whether these first bytes are those of a gzip file."""
    return head[:2] == _GZIP


def head_of(path: Path, count: int = _BLOCK) -> bytes:
    """First bytes of a file, unpacked if it is gzipped; empty if they cannot be."""
    with path.open("rb") as file:
        try:
            return gzip.GzipFile(fileobj=file).read(count) if is_gzip(file.peek(2)) else file.read(count)
        except (OSError, EOFError, zlib.error):
            return b""


def is_tar(path: Path) -> bool:
    """Whether the file is a tar, plain or gzipped, judged by its first header."""
    head = head_of(path)
    if head[257:262] != b"ustar":
        return False
    try:
        tarfile.TarInfo.frombuf(head, "utf-8", "surrogateescape")
    except tarfile.TarError:
        return False
    return True


@contextmanager
def opened(path: Path) -> Iterator[Archive]:
    """Open an archive and check its directory. Raises `BadInput` or `HostileFile`, also for damage found later."""
    try:
        with path.open("rb") as file:
            if zips.is_zip(path):
                with zipfile.ZipFile(file) as archive:
                    yield Archive(path, _files(_zip_entries(path)), archive)
            else:
                source: Any = unpacked(file, path.stat().st_size)
                yield Archive(path, _files(_tar_entries(source)), source)
    except DAMAGED as error:
        message = f"The archive cannot be read: {str(error)[:120]}."
        raise bad_file(path, "File damaged", message, "Pack it again, and copy it whole.") from None


def _files(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    return tuple(entry for entry in entries if not is_litter(entry.path))


def is_litter(path: PurePosixPath) -> bool:
    """Whether a file is a leftover of a file manager."""
    return "__MACOSX" in path.parts or path.name in _LITTER or path.name.startswith("._")


def _zip_entries(path: Path) -> list[Entry]:
    members = zips.members(path)
    zips.check_expansion(members, path.stat().st_size)
    _check_apart(members)
    files = [info for info in members if not info.is_dir()]
    for info in files:
        shown = _checked_name(info.orig_filename)
        if stat.S_IFMT(info.external_attr >> 16) not in (0, stat.S_IFREG):
            raise HostileFile(f"The entry '{shown}' is a link or a device, not a file.")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise HostileFile(f"The entry '{shown}' is packed in an unusual way. Pack the folder with an ordinary zip.")
    return [Entry(info.filename, info.file_size, info) for info in files]


def _check_apart(infos: list[zipfile.ZipInfo]) -> None:
    """Refuse entries that share a name or overlap: a few bytes would be read very often."""
    end, names = 0, {info.filename for info in infos}
    if len(names) != len(infos):
        raise HostileFile("The archive holds two files of the same name.")
    for info in sorted(infos, key=lambda info: info.header_offset):
        if info.header_offset < end:
            raise HostileFile("Entries of the archive overlap.")
        end = info.header_offset + info.compress_size


def _checked_name(name: str) -> str:
    """The name, shortened; raises `HostileFile` if it leads outside."""
    parts = name.replace("\\", "/").split("/")
    if parts[0] == "" or ".." in parts or ":" in parts[0]:
        raise HostileFile(f"The entry '{name[:80]}' has a name that leads outside its folder.")
    return name[:80]


def _tar_entries(source: IO[bytes]) -> list[Entry]:
    """Read the headers of a tar. Entries cannot overlap, for each begins after the one before."""
    entries: list[Entry] = []
    at, name, seen = 0, "", 0
    while True:
        if at > _MOST_BYTES:
            raise HostileFile("The archive claims more bytes than any disk has.")
        source.seek(at)
        head = source.read(_BLOCK)
        if len(head) < _BLOCK:
            raise EOFError("it is cut short")
        if head == bytes(_BLOCK):
            break
        seen += 1
        if seen > 2 * zips.MAX_MEMBERS:
            raise HostileFile(f"The archive lists more than {zips.MAX_MEMBERS:,} files.")
        try:
            info = tarfile.TarInfo.frombuf(head, "utf-8", "replace")
        except tarfile.TarError as error:
            raise zipfile.BadZipFile(f"a header of the tar is damaged ({error})") from None
        at += _BLOCK
        if info.type in (_LONG_NAME, _PAX):
            name = _long_name(info, source) or name
        elif info.type in _PLAIN:
            name = name or info.name
            _checked_name(name)
            if "\0" in name:
                raise HostileFile("The archive lists a file with a NUL in its name.")
            entries.append(Entry(name.removeprefix("./"), info.size, at))
            name = ""
        elif info.type == _FOLDER or info.type in _SKIPPED:
            name = ""
        else:
            raise HostileFile(f"The entry '{info.name[:80]}' is a link or a device, not a file.")
        at += -(-max(0, info.size) // _BLOCK) * _BLOCK
    if len({entry.name for entry in entries}) != len(entries):
        raise HostileFile("The archive holds two files of the same name.")
    return entries


def _long_name(info: tarfile.TarInfo, source: IO[bytes]) -> str:
    """Name that a header before the one of a file gives it; empty if it says other things."""
    if not 0 <= info.size <= _MAX_NAME_BYTES:
        raise HostileFile("The archive holds a name that is far too long.")
    content = source.read(info.size)
    if info.type == _LONG_NAME:
        return content.rstrip(b"\0").decode("utf-8", "replace")
    found = ""
    while content:
        length, _, _ = content.partition(b" ")
        if not length.isdigit() or len(length) > 6 or not len(length) < int(length) <= len(content):
            raise zipfile.BadZipFile("a header of the tar is damaged")
        key, _, value = content[len(length) + 1 : int(length)].rstrip(b"\n").partition(b"=")
        if key == b"size" or key.startswith(b"GNU.sparse"):
            raise HostileFile("The archive holds a sparse file, or one beyond 8 GiB. Pack it with an ordinary tar.")
        found = value.decode("utf-8", "replace") if key == b"path" else found
        content = content[int(length) :]
    return found


def no_layout(path: Path, message: str, remedy: str) -> BadInput:
    """The finding for an archive whose files are not laid out as data."""
    return bad_file(path, "Layout of the archive", message, remedy)
