"""The zip container of a `.pt2` file: the entries that it may have, and tensors as raw bytes."""

import re
import zipfile
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from math import prod
from operator import attrgetter
from pathlib import Path

import torch
from torch import Tensor

from unifiednn_core.base.errors import HostileFile
from unifiednn_core.formats.exported_schema import Payload, Payloads, Size, TensorMeta


@dataclass(frozen=True, slots=True)
class GraphEntries:
    """Names of the entries of one graph; torch's loader takes the one that is called `model`."""

    name: str

    @property
    def model(self) -> str:
        """The graph itself."""
        return f"models/{self.name}.json"

    @property
    def weights(self) -> str:
        """Table of weights and persistent buffers."""
        return f"data/weights/{self.name}_weights_config.json"

    @property
    def constants(self) -> str:
        """Table of all other tensors."""
        return f"data/constants/{self.name}_constants_config.json"

    @property
    def sample_inputs(self) -> str:
        """Example of a call; a pickle, never read."""
        return f"data/sample_inputs/{self.name}.pt"

    @property
    def all(self) -> tuple[str, ...]:
        """All four."""
        return self.model, self.weights, self.constants, self.sample_inputs


TRAINING, EVALUATION = GraphEntries("model"), GraphEntries("evaluation")
MAX_JSON_BYTES = 64 * 1024**2
MAX_ENTRIES = 20_000
_RECORD = re.compile(r"data/(weights/weight|constants/tensor)_[0-9]{1,9}")
_ENTRIES = frozenset(
    {"archive_format", "archive_version", "byteorder", ".data/version", ".data/serialization_id"}
    | {*TRAINING.all, *EVALUATION.all}
)
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the same content gives the same bytes

# Numbers of the export schema (torch/_export/serde/schema.py, ScalarType).
DTYPES = {
    1: torch.uint8,
    2: torch.int8,
    3: torch.int16,
    4: torch.int32,
    5: torch.int64,
    6: torch.float16,
    7: torch.float32,
    8: torch.float64,
    10: torch.complex64,
    11: torch.complex128,
    12: torch.bool,
    13: torch.bfloat16,
}


@dataclass(frozen=True, slots=True)
class TensorView:
    """Layout of a tensor in one record; equal views are one tensor."""

    record: str
    dtype: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


def open_entries(archive: zipfile.ZipFile, size_bytes: int) -> dict[str, zipfile.ZipInfo]:
    """List the entries by their names below the top folder; raises `HostileFile` for anything unexpected."""
    infos = archive.infolist()
    if len(infos) > MAX_ENTRIES:
        raise HostileFile(f"The archive has {len(infos)} entries; at most {MAX_ENTRIES} are read.")
    entries: dict[str, zipfile.ZipInfo] = {}
    folders = {info.filename.partition("/")[0] for info in infos}
    for info in infos:
        name = info.filename.partition("/")[2]
        known = name in _ENTRIES or _RECORD.fullmatch(name)
        if not known or name in entries or len(folders) != 1:
            raise HostileFile(f"The archive has an entry that no exported program has: {info.filename[:100]!r}.")
        if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 0x1 or info.compress_size != info.file_size:
            raise HostileFile(f"The entry {info.filename!r} is compressed or encrypted, as no exported program is.")
        if name.endswith(".json") and info.file_size > MAX_JSON_BYTES:
            raise HostileFile(f"The entry {info.filename!r} has {info.file_size} bytes; at most {MAX_JSON_BYTES}.")
        entries[name] = info
    if sum(info.file_size for info in infos) > size_bytes:
        raise HostileFile("The archive claims to hold more bytes than the file has.")
    return entries


def views_of(payloads: Payloads, folder: str, entries: Mapping[str, zipfile.ZipInfo]) -> dict[str, TensorView]:
    """Find the place of each tensor; raises `HostileFile` if one reaches beyond its record or overlaps another."""
    views = {name: _view(name, payload, folder, entries) for name, payload in payloads.config.items()}
    used: Counter[str] = Counter()
    for view in set(views.values()):
        used[view.record] += prod(view.shape) * DTYPES[view.dtype].itemsize
    for record, size_bytes in used.items():
        if size_bytes > entries[record].file_size:
            raise HostileFile(f"The tensors in '{record}' claim {size_bytes} of its {entries[record].file_size} bytes.")
    return views


def read_tensors(
    archive: zipfile.ZipFile, entries: Mapping[str, zipfile.ZipInfo], views: Iterable[TensorView]
) -> dict[TensorView, Tensor]:
    """Copy all tensors, in the memory layout of the file."""
    by_record = attrgetter("record")
    tensors: dict[TensorView, Tensor] = {}
    for record, here in groupby(sorted(set(views), key=by_record), by_record):
        raw = bytearray(archive.read(entries[record]))
        for view in here:
            dtype = DTYPES[view.dtype]
            flat = torch.frombuffer(raw, dtype=dtype) if raw else torch.empty(0, dtype=dtype)
            tensors[view] = torch.as_strided(flat, view.shape, view.strides, view.offset).clone()
    return tensors


def write_archive(path: Path, folder: str, entries: Mapping[str, bytes]) -> None:
    """Write uncompressed entries for the official loader; equal entries give equal bytes."""
    fixed = {"archive_format": b"pt2", "archive_version": b"0", ".data/version": b"6\n", "byteorder": b"little"}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, content in {**fixed, **entries}.items():
            archive.writestr(zipfile.ZipInfo(f"{folder}/{name}", _EPOCH), content)


def contiguous_meta(meta: TensorMeta) -> TensorMeta:
    """Describe the same tensor, contiguous in its own record."""
    sizes = [size.as_int for size in meta.sizes]
    strides = tuple(Size(as_int=prod(max(size, 1) for size in sizes[place + 1 :])) for place in range(len(sizes)))
    return meta.model_copy(update={"strides": strides, "storage_offset": Size(as_int=0)})


def _view(name: str, payload: Payload, folder: str, entries: Mapping[str, zipfile.ZipInfo]) -> TensorView:
    record, meta = f"data/{folder}/{payload.path_name}", payload.tensor_meta
    if record not in entries:
        raise HostileFile(f"The tensor '{name}' names the record '{record}', which the archive does not hold.")
    numbers = (*meta.sizes, *meta.strides, meta.storage_offset)
    if any(number.kind != "as_int" or number.as_int < 0 for number in numbers) or len(meta.sizes) != len(meta.strides):
        raise HostileFile(f"The tensor '{name}' has no fixed shape.")
    shape, strides = (tuple(number.as_int for number in part) for part in (meta.sizes, meta.strides))
    offset, itemsize = meta.storage_offset.as_int, DTYPES[meta.dtype].itemsize
    size_bytes = entries[record].file_size
    last = offset + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    fits = 0 in shape or (last < size_bytes // itemsize and prod(shape) <= size_bytes // itemsize)
    if size_bytes % itemsize or not fits:
        raise HostileFile(f"The tensor '{name}' of shape {list(shape)} reaches beyond its {size_bytes} bytes.")
    return TensorView(record, meta.dtype, shape, strides, offset)
