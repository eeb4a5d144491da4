"""Reads the pickles of CIFAR-10 and CIFAR-100. Pickles are programs, so none runs: they fill inert records."""

import io
import pickle
import pickletools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unifiednn_core.base.errors import BadInput, HostileFile
from unifiednn_core.data.archives import Archive, Entry
from unifiednn_core.data.parts import TEST, TRAIN, DataPart, Parts, in_order
from unifiednn_core.data.values import MAX_CLASS_NAMES, DataNotes, ImportOptions
from unifiednn_core.formats.tensor_files import bad_file, full_name

MAX_PICKLE_BYTES = 256 * 1024**2
MAX_OPERATIONS = 1_000_000
MAX_TUPLES = 1000
_PIXELS = 3 * 32 * 32
_ROWS_NAME = re.compile(r"data_batch_\d{1,2}|test_batch|train|test")
_META_NAMES = ("batches.meta", "meta")
_LABELS = (b"labels", b"fine_labels")
_NAMES = (b"label_names", b"fine_label_names")
_FIRST_KEYS = (b"batch_label", b"labels", b"fine_labels", b"coarse_labels", b"data", b"filenames", b"label_names")
_OTHER_NAMES = (".html", ".txt", ".txt~", ".md", "readme")
# The operations that pickles of dicts, lists, texts and arrays have; all others are refused.
_WRITTEN = """
PROTO FRAME GLOBAL STACK_GLOBAL REDUCE BUILD APPEND APPENDS SETITEM SETITEMS MARK TUPLE TUPLE1 TUPLE2 TUPLE3 NONE
NEWFALSE NEWTRUE EMPTY_TUPLE EMPTY_LIST EMPTY_DICT BININT BININT1 BININT2 LONG1 BINGET LONG_BINGET BINPUT LONG_BINPUT
MEMOIZE BINUNICODE SHORT_BINUNICODE BINSTRING SHORT_BINSTRING BINBYTES SHORT_BINBYTES STOP
"""
_OPERATIONS = frozenset(_WRITTEN.split())
_HOW = "Give cifar-10-python.tar.gz or cifar-100-python.tar.gz as it was downloaded, or one of the batches in it."


class _Array:
    """State of a numpy array in a pickle."""

    state: Any = ()

    def __setstate__(self, state: object) -> None:
        self.state = state


class _Kind:
    """Type of the numbers of an array in a pickle."""

    def __init__(self, *args: object):
        self.args = args

    def __setstate__(self, state: object) -> None:
        return None


def _array(*_: object) -> _Array:
    return _Array()


def _bytes(text: object, encoding: object) -> bytes:
    if not isinstance(text, str) or encoding not in ("latin1", b"latin1"):
        raise pickle.UnpicklingError("bytes in an unknown encoding")
    return text.encode("latin-1")


class _Maker:
    """Replaces a class or function that a pickle names; nothing in a pickle can change it."""

    __slots__ = ("_make",)

    def __init__(self, make: Callable[..., object]):
        self._make = make

    def __call__(self, *args: object) -> object:
        return self._make(*args)

    def __setstate__(self, state: object) -> None:
        raise pickle.UnpicklingError("a class has no state")


_KNOWN = {
    "numpy.core.multiarray._reconstruct": _Maker(_array),
    "numpy._core.multiarray._reconstruct": _Maker(_array),
    "numpy.ndarray": _Maker(_array),
    "numpy.dtype": _Maker(_Kind),
    "_codecs.encode": _Maker(_bytes),
}


class _Records(pickle.Unpickler):
    """Knows arrays and bytes, as records without behaviour."""

    def find_class(self, module: str, name: str) -> Any:
        known = _KNOWN.get(full_name(f"{module} {name}"))
        if known is None:
            raise HostileFile(f"The pickle names '{module[:60]}.{name[:60]}', which no data set needs.")
        return known

    def persistent_load(self, pid: Any) -> Any:
        raise HostileFile("The pickle names things outside of it.")


@dataclass(frozen=True, slots=True)
class _Batch:
    pixels: Tensor  # uint8 [samples, 3, 32, 32]
    labels: tuple[int, ...]


def is_batch(path: Path) -> bool:
    """Whether a file begins as the pickles of CIFAR do: a dict with one of its keys."""
    with path.open("rb") as file:
        head = file.read(4096)
    start = 11 if head[2:3] == b"\x95" else 2
    return head[:1] == b"\x80" and head[start : start + 1] == b"}" and any(key in head[:80] for key in _FIRST_KEYS)


def is_name(name: str) -> bool:
    """Whether an archive with a file of this name may be one of CIFAR."""
    return bool(re.search(r"(^|/)(batches\.meta|data_batch_\d|cifar-100-python/)", name))


def single(path: Path, options: ImportOptions) -> Parts:
    """One batch as uint8 [samples, 3, 32, 32]; raises `BadInput` or `HostileFile`."""
    if path.stat().st_size > MAX_PICKLE_BYTES:
        raise HostileFile(f"The pickle has more than {MAX_PICKLE_BYTES} bytes.")
    batch = _batch(path, path.read_bytes())
    return {"": _part([len(batch.labels)], lambda _: batch, batch.labels, ())}


def batches(archive: Archive, options: ImportOptions) -> Parts:
    """All batches of a download, as a training and a test set; raises `BadInput` or `HostileFile`."""
    files: dict[str, list[Entry]] = {}
    names: tuple[str, ...] = ()
    for entry in archive.entries:
        if entry.path.name in _META_NAMES:
            names = _class_names(archive.path, archive.read(entry, 2**20))
        elif _ROWS_NAME.fullmatch(entry.path.name):
            files.setdefault(TEST if entry.path.name.startswith("test") else TRAIN, []).append(entry)
        elif not entry.path.name.lower().endswith(_OTHER_NAMES):
            raise _bad(archive.path, f"'{entry.name[:80]}' is no file of CIFAR, unlike others in the archive.")
    if not files:
        raise _bad(archive.path, "The archive has no batches.")
    return in_order({part: _several(archive, sorted(found, key=_by_name), names) for part, found in files.items()})


def _by_name(entry: Entry) -> tuple[int, str]:
    return len(entry.name), entry.name


def _several(archive: Archive, entries: Sequence[Entry], names: tuple[str, ...]) -> DataPart:
    @lru_cache(maxsize=1)
    def batch(at: int) -> _Batch:
        return _batch(archive.path, archive.read(entries[at], MAX_PICKLE_BYTES))

    labels: list[int] = []
    lengths: list[int] = []
    for at in range(len(entries)):
        labels += batch(at).labels
        lengths.append(len(batch(at).labels))
    return _part(lengths, batch, labels, names)


def _part(lengths: Sequence[int], batch: Any, labels: Sequence[int], names: tuple[str, ...]) -> DataPart:
    ends = np.cumsum(lengths)
    targets = torch.tensor(labels, dtype=torch.int64)

    def rows(name: str, start: int, end: int) -> Tensor:
        if name == "targets":
            return targets[start:end]
        found = []
        while start < end:
            at = int(np.searchsorted(ends, start, side="right"))
            first, last = int(ends[at]) - lengths[at], min(end, int(ends[at]))
            found.append(batch(at).pixels[start - first : last - first])
            start = last
        return torch.cat(found)

    named = names if len(names) > max(labels, default=0) else ()
    like = torch.empty(len(labels), 3, 32, 32, dtype=torch.uint8, device="meta")
    return DataPart({"inputs": like, "targets": targets}, rows, DataNotes(origin="cifar", class_names=named))


def _batch(path: Path, content: bytes) -> _Batch:
    found = _loaded(path, content)
    data = found.get(b"data")
    labels = next((found[key] for key in _LABELS if key in found), None)
    if not isinstance(data, _Array) or not isinstance(labels, list):
        raise _bad(path, "It has no 'data' and 'labels' of CIFAR.")
    pixels = _bytes_of(data)
    if len(pixels) != len(labels) * _PIXELS or not labels:
        raise _bad(path, f"There are {len(labels):,} labels, but the pixels are not those of as many images.")
    if not all(type(label) is int and 0 <= label < MAX_CLASS_NAMES for label in labels):
        raise _bad(path, "A label is not a class number.")
    images = torch.frombuffer(bytearray(pixels), dtype=torch.uint8).view(len(labels), 3, 32, 32)
    return _Batch(images, tuple(labels))


def _bytes_of(array: _Array) -> bytes:
    """Bytes of an array of uint8 in C order; raises `HostileFile`."""
    match array.state:
        case (_, tuple(), _Kind(args=(b"u1" | "u1", *_)), False | 0, bytes(content)):
            return content
    raise HostileFile("The pickle holds an array that is not one of bytes.")


def _class_names(path: Path, content: bytes) -> tuple[str, ...]:
    found = _loaded(path, content)
    names: list[object] = next((found[key] for key in _NAMES if isinstance(found.get(key), list)), [])
    return tuple(name.decode("utf-8", "replace")[:200] for name in names[:MAX_CLASS_NAMES] if isinstance(name, bytes))


def _loaded(path: Path, content: bytes) -> Mapping[object, Any]:
    """Entries of a pickled dict by their names as bytes; raises `BadInput` or `HostileFile`."""
    try:
        _scan(content)
        loaded = _Records(io.BytesIO(content), encoding="bytes").load()
    except HostileFile:
        raise
    except (pickle.UnpicklingError, ValueError, EOFError, TypeError, AttributeError, IndexError, KeyError) as error:
        raise _bad(path, f"The pickle cannot be read ({type(error).__name__}).") from None
    if not isinstance(loaded, dict):
        raise _bad(path, "The pickle holds no dict.")
    return {key.encode() if isinstance(key, str) else key: value for key, value in loaded.items()}


def _scan(content: bytes) -> None:
    """Refuse operations and sizes that no data set needs, before anything is made of them; raises `HostileFile`."""
    tuples = 0
    for count, (operation, argument, _) in enumerate(pickletools.genops(io.BytesIO(content))):
        tuples += operation.name.startswith("TUPLE")
        if operation.name not in _OPERATIONS or count > MAX_OPERATIONS:
            raise HostileFile(f"The pickle has an operation that no data set needs: {operation.name}.")
        if operation.name == "LONG_BINPUT" and isinstance(argument, int) and argument > count:
            raise HostileFile("The pickle numbers its objects beyond their count.")
        if tuples > MAX_TUPLES:  # nested ones overflow the stack when they are hashed
            raise HostileFile("The pickle has more tuples than any data set needs.")


def _bad(path: Path, message: str) -> BadInput:
    return bad_file(path, "CIFAR", message, _HOW)
