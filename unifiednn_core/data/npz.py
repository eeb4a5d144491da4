"""Arrays of numpy's `.npz`, or `.npy` in any zip, and of IDX, the files of MNIST: images and labels in one archive.

They are mapped if they are stored, read forwards if they are compressed or have the byte order of another machine.
"""

import io
import math
import re
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor

from unifiednn_core.base.errors import BadInput, HostileFile
from unifiednn_core.data import archives
from unifiednn_core.data.archives import Archive, Entry
from unifiednn_core.data.arrays import parts_of
from unifiednn_core.data.parts import PART_NAMES, DataPart, Parts, in_order
from unifiednn_core.data.values import DataNotes, ImportOptions
from unifiednn_core.formats import tensor_files, zips
from unifiednn_core.formats.tensor_files import bad_file

Dtype = np.dtype[Any]


@dataclass(frozen=True, slots=True)
class ArrayStream:
    """An array in C order, which begins at `offset` of an open file."""

    file: IO[bytes]
    offset: int
    dtype: Dtype
    shape: tuple[int, ...]

    @property
    def like(self) -> Tensor:
        """A tensor of the same shape and type without content. Raises `TypeError` if torch has no such type."""
        native = torch.from_numpy(np.empty(0, self.dtype.newbyteorder("="))).dtype
        return torch.empty(self.shape, dtype=native, device="meta")

    def rows(self, start: int, end: int) -> Tensor:
        """Read some rows; raises `EOFError` if the file ends before."""
        row_bytes = math.prod(self.shape[1:]) * self.dtype.itemsize
        self.file.seek(self.offset + start * row_bytes)
        content = bytearray(self.file.read((end - start) * row_bytes))
        if len(content) < (end - start) * row_bytes:
            raise EOFError("an array ends before its last sample")
        found = np.frombuffer(content, self.dtype).reshape(end - start, *self.shape[1:])
        return torch.from_numpy(found.astype(self.dtype.newbyteorder("="), copy=False))


def check_claim(name: str, shape: tuple[int, ...], dtype: Dtype, content_bytes: int) -> None:
    """Raise `HostileFile` if an array claims more bytes than there are."""
    if any(size < 0 for size in shape) or math.prod(shape) * dtype.itemsize > content_bytes:
        raise HostileFile(f"The array '{name[:60]}' claims the shape {shape}, but the file has fewer bytes.")


MAX_TURNED_BYTES = 2 * 1024**3
"""Of a compressed array whose first index varies fastest, which is read as a whole."""
_DAMAGED = (
    *(zipfile.BadZipFile, ValueError, EOFError, OSError, NotImplementedError, RuntimeError, OverflowError),
    *(SyntaxError, tokenize.TokenError, zlib.error),
)
_OBJECTS = "Object arrays are not read"
_HOW_TO_STACK = (
    "Make samples of one shape and save numbers: a = numpy.load('x.npy', allow_pickle=True); "
    "numpy.savez('data.npz', x=numpy.stack(a), y=y)."
)
_MAX_NPY_HEADER_BYTES = 12 + 10_000  # numpy reads no longer one


def is_npz(path: Path) -> bool:
    """Whether the file is a zip of arrays alone."""
    names = [name for name in map(PurePosixPath, zips.names(path)) if not archives.is_litter(name)]
    return any(name.suffix == ".npy" for name in names) and all(name.suffix in (".npy", "") for name in names)


def is_npy(path: Path) -> bool:
    """Whether the file is one array of numpy."""
    with path.open("rb") as file:
        return file.read(6) == b"\x93NUMPY"


def refused(path: Path, _: ImportOptions) -> Parts:
    """Refuse one array, which holds inputs or targets, never both; raises `BadInput`."""
    with path.open("rb") as file, _reading(path):
        if _header(io.BytesIO(file.read(_MAX_NPY_HEADER_BYTES)))[2].hasobject:
            raise ValueError(_OBJECTS)
    remedy = "Put both into one zip, as x.npy and y.npy, or save them together: numpy.savez(path, x=x, y=y)."
    raise tensor_files.bad_file(path, "One array of two", "A .npy file holds inputs or targets alone.", remedy)


def is_read_forwards(path: Path) -> bool:
    """Whether an array in the file must be unpacked or its bytes turned round; raises `BadInput` or `HostileFile`."""
    if any(info.compress_type != zipfile.ZIP_STORED for info in zips.members(path)):
        return True
    with _reading(path), archives.opened(path) as archive:
        return not all(map(partial(_is_native, archive), archive.entries))


def _is_native(archive: Archive, entry: Entry) -> bool:
    with archive.open(entry) as file:
        *_, dtype = _claimed(entry, file)
        return bool(dtype.isnative)


def load_npz(path: Path) -> dict[str, Tensor]:
    """Map all arrays, which are stored, by name; raises `BadInput` or `HostileFile`."""
    with _reading(path), archives.opened(path) as archive:
        return {_name(entry): _mapped(path, archive, entry) for entry in archive.entries}


@contextmanager
def unpacked(path: Path) -> Iterator[Parts]:
    """Read arrays forwards; raises `BadInput` or `HostileFile`."""
    with _reading(path), archives.opened(path) as archive:
        yield streamed(archive)


def streamed(archive: Archive) -> Parts:
    """The parts of an archive of `.npy` files; raises `BadInput` or `HostileFile`."""
    arrays = {_name(entry): _stream(archive, entry) for entry in archive.entries}
    like = {name: array.like for name, array in arrays.items()}
    return parts_of(archive.path, like, lambda name, start, end: arrays[name].rows(start, end))


def _name(entry: Entry) -> str:
    return entry.path.name.removesuffix(".npy")


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn errors of a reader into findings."""
    try:
        yield
    except (HostileFile, BadInput):
        raise
    except TypeError as error:
        raise _bad_type(path, f"torch cannot hold these arrays: {error}.") from None
    except _DAMAGED as error:
        if _OBJECTS in str(error):
            message = (
                "The file holds an array of Python objects, such as arrays of several shapes; only numbers are read."
            )
            raise tensor_files.bad_file(path, "Type of data", message, _HOW_TO_STACK) from None
        raise tensor_files.damaged(path) from None


def _claimed(entry: Entry, file: IO[bytes]) -> tuple[int, tuple[int, ...], bool, np.dtype[Any]]:
    """Offset, shape, Fortran order and type of an array; raises `HostileFile`."""
    head = io.BytesIO(file.read(_MAX_NPY_HEADER_BYTES))
    shape, column_order, dtype = _header(head)
    check_claim(entry.path.name, shape, dtype, 2**62 if dtype.hasobject else entry.size_bytes - head.tell())
    if dtype.hasobject:
        raise ValueError(_OBJECTS)
    return head.tell(), shape, column_order, dtype


def _mapped(path: Path, archive: Archive, entry: Entry) -> Tensor:
    with archive.open(entry) as file:
        begin, shape, column_order, dtype = _claimed(entry, file)
        length = int(np.prod(shape, dtype=object)) * dtype.itemsize
        if not length:
            file.seek(0)
            return torch.from_numpy(np.lib.format.read_array(file, allow_pickle=False))
    offset = zips.content_offset(path, entry.place) + begin
    if offset + length > path.stat().st_size:
        raise zipfile.BadZipFile("an array ends after the file")
    found: Any = np.ndarray(shape, dtype, tensor_files.mapped_bytes(path), offset, order="F" if column_order else "C")
    return torch.from_numpy(found)


def _stream(archive: Archive, entry: Entry) -> ArrayStream:
    file = archive.open(entry)
    offset, shape, column_order, dtype = _claimed(entry, file)
    if not column_order or len(shape) < 2:
        return ArrayStream(file, offset, dtype, shape)
    file.seek(offset)
    content = archive.read(entry, MAX_TURNED_BYTES)[offset:]
    turned = np.frombuffer(content, dtype, int(np.prod(shape))).reshape(shape, order="F")
    return ArrayStream(io.BytesIO(turned.tobytes()), 0, dtype, shape)


def _header(file: io.BytesIO) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read shape, Fortran order and type before numpy allocates anything."""
    match np.lib.format.read_magic(file):
        case (1, 0):
            return np.lib.format.read_array_header_1_0(file)
        case (2, 0):
            return np.lib.format.read_array_header_2_0(file)
    raise ValueError("unknown version")


def _bad_type(path: Path, message: str) -> BadInput:
    remedy = "Save plain numbers: numpy.savez(path, inputs=inputs, targets=targets)."
    return tensor_files.bad_file(path, "Type of data", message, remedy)


_DTYPES = {8: "u1", 9: "i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}
_MOST_DIMENSIONS = 4
_NAME = re.compile(r"[-.]idx\d?|-ubyte|\.idx")
_HELD = {"inputs": "images", "targets": "labels"}
_WORDS = re.compile(r"[^a-z0-9]+")
_LAYOUT = (
    "Put the file of the images and the file of the labels into one zip; with all four files of MNIST in it, a "
    "training and a test set come of it."
)


def is_idx(path: Path) -> bool:
    """Whether a file, plain or gzipped, begins as IDX files do."""
    return _kind(archives.head_of(path, 16)) is not None


def is_name(name: str) -> bool:
    """Whether files of this name are IDX."""
    return bool(_NAME.search(name.lower()))


def _kind(head: bytes) -> tuple[str, int] | None:
    """Type and number of dimensions of an IDX file."""
    if len(head) < 8 or head[:2] != b"\0\0" or head[2] not in _DTYPES or not 1 <= head[3] <= _MOST_DIMENSIONS:
        return None
    return _DTYPES[head[2]], head[3]


def refused_idx(path: Path, _: ImportOptions) -> Parts:
    """Refuse one IDX file, which holds images or labels, never both; raises `BadInput`."""
    kind = _kind(archives.head_of(path, 16))
    held, missing = ("labels", "images") if kind is not None and kind[1] == 1 else ("images", "labels")
    raise bad_file(path, "One file of two", f"This IDX file holds {held} alone; the {missing} are in another.", _LAYOUT)


def files(archive: Archive, options: ImportOptions) -> Parts:
    """Images as [samples, 1, height, width] and their labels; raises `BadInput` or `HostileFile`."""
    found: dict[str, dict[str, ArrayStream]] = {}
    for entry in archive.entries:
        if not is_name(entry.name):
            raise _bad(archive, f"'{entry.name[:80]}' is not an IDX file, unlike others in the archive.")
        array = _array(archive, entry)
        words = _WORDS.split(entry.path.name.lower())
        part = next((PART_NAMES[word] for word in words if word in PART_NAMES), "")
        name = "targets" if len(array.shape) == 1 else "inputs"
        if found.setdefault(part, {}).setdefault(name, array) is not array:
            raise _bad(archive, f"'{entry.name[:80]}' is a second file of {_HELD[name]}.")
    for part, arrays in found.items():
        if len(arrays) < 2:
            held, missing = _HELD.values() if "inputs" in arrays else reversed(_HELD.values())
            raise _bad(archive, f"The archive has {held} without {missing}{part and f' ({part})'}.")
    return in_order({part: _part(arrays) for part, arrays in found.items()})


def _part(arrays: dict[str, ArrayStream]) -> DataPart:
    def shaped(name: str, found: Tensor) -> Tensor:
        return found.unsqueeze(1) if name == "inputs" and found.dim() == 3 else found

    like = {name: shaped(name, arrays[name].like) for name in ("inputs", "targets")}
    return DataPart(like, lambda name, start, end: shaped(name, arrays[name].rows(start, end)), DataNotes(origin="idx"))


def _array(archive: Archive, entry: Entry) -> ArrayStream:
    file = archives.unpacked(archive.open(entry), entry.size_bytes)
    head = file.read(4 + 4 * _MOST_DIMENSIONS)
    kind = _kind(head)
    if kind is None or len(head) < 4 + 4 * kind[1]:
        raise _bad(archive, f"'{entry.name[:80]}' is damaged, or not an IDX file.")
    dtype, dimensions = np.dtype(kind[0]), kind[1]
    shape = tuple(int(size) for size in np.frombuffer(head, ">u4", dimensions, 4))
    offset = 4 + 4 * dimensions
    check_claim(entry.name, shape, dtype, _length(file, offset + math.prod(shape) * dtype.itemsize) - offset)
    return ArrayStream(file, offset, dtype, shape)


def _length(file: IO[bytes], wanted: int) -> int:
    """Bytes of a file, or `wanted` if it has more; reads on in blocks."""
    file.seek(0)
    there = 0
    while there < wanted and (found := file.read(min(2**20, wanted - there))):
        there += len(found)
    return there


def _bad(archive: Archive, message: str) -> BadInput:
    return bad_file(archive.path, "IDX", message, _LAYOUT)
