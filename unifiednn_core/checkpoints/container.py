"""The safetensors container: written with real `OSError`s, and read with every length checked before allocation.

Eight bytes for the length of the header (little-endian), the header (JSON: dtype, shape and place of each tensor, and
`__metadata__`), then the bytes of the tensors without a gap. The safetensors library reads what is written here.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

import torch
from torch import Tensor

MAX_HEADER_BYTES = 100_000_000  # the limit of the safetensors library
MAX_DIMENSIONS = 64
MAX_ELEMENTS = 2**48  # of a shape without its zeros; beyond, strides overflow
FOREIGN = "is not a checkpoint of UnifiedNN"
_LENGTH_BYTES = 8
_METADATA = "__metadata__"

_DTYPES: dict[str, torch.dtype] = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U64": torch.uint64,
    "U32": torch.uint32,
    "U16": torch.uint16,
    "U8": torch.uint8,
    "BOOL": torch.bool,
    "C64": torch.complex64,
}
_DTYPE_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


class Unreadable(ValueError):
    """Why a file cannot be read, as what follows its name in a sentence."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a tensor lies in the file."""

    dtype: str
    """Name of the dtype in safetensors."""
    shape: tuple[int, ...]
    start: int
    """Offset in bytes from the beginning of the file."""
    bytes: int


@dataclass(frozen=True, slots=True)
class Header:
    """What stands before the tensors."""

    metadata: Mapping[str, str]
    entries: Mapping[str, Entry]


def plain(name: str, tensor: Tensor) -> Tensor:
    """Contiguous tensor on the host; raises `TypeError` for a kind that the container does not have."""
    if tensor.layout is not torch.strided or tensor.device.type == "meta" or tensor.dtype not in _DTYPE_NAMES:
        raise TypeError(f"{name} is a {tensor.dtype} tensor ({tensor.layout}, {tensor.device}), which cannot be kept.")
    return tensor.detach().cpu().contiguous()


def dtype_name(tensor: Tensor) -> str:
    """Name of its dtype in safetensors."""
    return _DTYPE_NAMES[tensor.dtype]


def raw(tensor: Tensor) -> memoryview:
    """Bytes of a contiguous tensor on the host, without a copy."""
    return tensor.reshape(-1).view(torch.uint8).numpy().data


def write_tensors(file: BinaryIO, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write tensors that `plain` made; raises `ValueError` where the header would be too long for anybody to read."""
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0]))  # keeps each one aligned
    header: dict[str, Any] = {_METADATA: dict(metadata)}
    end = 0
    for name, tensor in ordered:
        begin, end = end, end + tensor.nbytes
        header[name] = {"dtype": dtype_name(tensor), "shape": list(tensor.shape), "data_offsets": [begin, end]}
    document = json.dumps(header, separators=(",", ":")).encode()
    document += b" " * (-len(document) % _LENGTH_BYTES)
    if len(document) > MAX_HEADER_BYTES:
        raise ValueError(f"The header has {len(document)} bytes, more than the {MAX_HEADER_BYTES} that can be read.")
    file.write(len(document).to_bytes(_LENGTH_BYTES, "little"))
    file.write(document)
    for _, tensor in ordered:
        file.write(raw(tensor))


def read_header(file: BinaryIO, size_bytes: int) -> Header:
    """Read and check the header of a file of this size; raises `Unreadable`."""
    length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
    begin = _LENGTH_BYTES + length
    if size_bytes < _LENGTH_BYTES:
        raise Unreadable(f"is cut short: it has {size_bytes} bytes")
    if length > MAX_HEADER_BYTES or file.read(1) not in (b"{", b""):
        raise Unreadable(FOREIGN)
    if begin > size_bytes:
        raise Unreadable(f"is cut short: {begin - size_bytes} bytes of its header are missing")
    file.seek(_LENGTH_BYTES)
    try:
        header = json.loads(file.read(length))
        metadata = header.pop(_METADATA, {})
        entries = {name: _entry(name, described, begin) for name, described in header.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Unreadable(str(error) if isinstance(error, Unreadable) else "has a header that is garbled") from None
    if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
        raise Unreadable("has a header that is garbled")
    _check_places(entries, begin, size_bytes)
    return Header(metadata, entries)


def read_tensor(file: BinaryIO, entry: Entry) -> Tensor:
    """Read one tensor of a checked header; raises `Unreadable` where the file has become shorter meanwhile."""
    content = torch.empty(entry.bytes, dtype=torch.uint8)
    file.seek(entry.start)
    if file.readinto(raw(content)) != entry.bytes:  # type: ignore[attr-defined]
        raise Unreadable("is cut short: it shrank while it was read")
    return content.view(_DTYPES[entry.dtype]).reshape(entry.shape)


def _entry(name: str, described: Any, begin: int) -> Entry:
    dtype, shape, (start, end) = described["dtype"], described["shape"], described["data_offsets"]
    if not all(type(number) is int and number >= 0 for number in (*shape, start, end)):
        raise Unreadable(f"says no true shape for the tensor '{name}'")
    if len(shape) > MAX_DIMENSIONS or math.prod(max(1, size) for size in shape) > MAX_ELEMENTS:
        raise Unreadable(f"claims the shape {str(shape)[:60]} for the tensor '{name}'")
    if math.prod(shape) * _DTYPES[dtype].itemsize != end - start:
        raise Unreadable(f"says a shape for the tensor '{name}' that does not fit its bytes")
    return Entry(dtype, tuple(shape), begin + start, end - start)


def _check_places(entries: Mapping[str, Entry], begin: int, size_bytes: int) -> None:
    """The tensors must cover the rest of the file, without gap or overlap."""
    end = begin
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].start, item[1].bytes)):
        if entry.start != end:
            raise Unreadable(f"has a gap or an overlap before the tensor '{name}'")
        end += entry.bytes
    if end > size_bytes:
        raise Unreadable(f"is cut short: {end - size_bytes} of {end} bytes are missing")
    if end < size_bytes:
        raise Unreadable(f"has {size_bytes - end} bytes after its end")
