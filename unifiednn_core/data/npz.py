"""Arrays of numpy's `.npz`: mapped if `numpy.savez` stored them, unpacked if they are compressed."""

import io
import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unifiednn_core.base.errors import BadInput, HostileFile
from unifiednn_core.formats import tensor_files, zips

MAX_UNPACKED_BYTES = 2 * 1024**3
_DAMAGED = (
    *(zipfile.BadZipFile, ValueError, EOFError, OSError, NotImplementedError, RuntimeError, OverflowError),
    *(SyntaxError, tokenize.TokenError, zlib.error),
)
_MAX_NPY_HEADER_BYTES = 12 + 10_000  # numpy reads no longer one


def is_npz(path: Path) -> bool:
    """Whether the file is a zip of arrays alone."""
    names = zips.names(path)
    return bool(names) and all(name.endswith(".npy") for name in names)


def is_compressed(path: Path) -> bool:
    """Whether an array in the file must be unpacked."""
    return any(info.compress_type != zipfile.ZIP_STORED for info in zips.members(path))


def load_npz(path: Path) -> dict[str, Tensor]:
    """Load all arrays by name; raises `BadInput` or `HostileFile`."""
    try:
        infos = zips.members(path)
        unpacked_bytes = zips.check_expansion(infos, path.stat().st_size)
        if unpacked_bytes > MAX_UNPACKED_BYTES:
            raise HostileFile(
                f"The file would unpack to {unpacked_bytes} bytes; at most {MAX_UNPACKED_BYTES} are unpacked. "
                "Save it with numpy.savez, which does not compress, so that it is mapped."
            )
        with zipfile.ZipFile(path) as archive:
            return {info.filename.removesuffix(".npy"): _array(path, archive, info) for info in infos}
    except HostileFile:
        raise
    except TypeError as error:
        raise _bad_type(path, f"torch cannot hold these arrays: {error}.") from None
    except _DAMAGED as error:
        if "Object arrays" in str(error):
            raise _bad_type(path, "The file holds Python objects; only numbers are read.") from None
        raise tensor_files.damaged(path) from None


def _array(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Tensor:
    with archive.open(info) as file:
        head = io.BytesIO(file.read(_MAX_NPY_HEADER_BYTES))
        shape, column_order, dtype = _header(head)
        length = int(np.prod(shape, dtype=object)) * dtype.itemsize
        if any(size < 0 for size in shape) or (not dtype.hasobject and length > info.file_size - head.tell()):
            claim = f"claims the shape {shape}, but the file has fewer bytes"
            raise HostileFile(f"The array '{info.filename[:60]}' {claim}.")
        if dtype.hasobject:
            raise ValueError("Object arrays are not read")
        if info.compress_type != zipfile.ZIP_STORED or not length:
            file.seek(0)
            return torch.from_numpy(np.lib.format.read_array(file, allow_pickle=False))
    offset = zips.content_offset(path, info) + head.tell()
    if offset + length > path.stat().st_size:
        raise zipfile.BadZipFile("an array ends after the file")
    # "c" keeps writes in memory; torch warns about read-only arrays.
    return torch.from_numpy(np.memmap(path, dtype, "c", offset, shape, "F" if column_order else "C"))


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
