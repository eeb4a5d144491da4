"""Reads IDX, the files of MNIST: images and labels are two files, plain or gzipped, in one archive."""

import math
import re
from pathlib import Path
from typing import IO

import numpy as np
from torch import Tensor

from unifiednn_core.base.errors import BadInput
from unifiednn_core.data import archives
from unifiednn_core.data.archives import Archive, Entry
from unifiednn_core.data.npz import ArrayStream, check_claim
from unifiednn_core.data.parts import PART_NAMES, DataPart, Parts, in_order
from unifiednn_core.data.values import DataNotes, ImportOptions
from unifiednn_core.formats.tensor_files import bad_file

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


def refused(path: Path, _: ImportOptions) -> Parts:
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
