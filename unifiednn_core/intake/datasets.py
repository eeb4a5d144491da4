"""Data sets: one tensor of inputs and one of targets, from `.pt`, `.safetensors` or `.npz`."""

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from unifiednn_core.errors import BadInput, HostileFile
from unifiednn_core.intake import tensor_files

KEYS = frozenset({"inputs", "targets"})
FREE_UNPACKED_BYTES = 256 * 1024**2
MAX_UNPACKED_RATIO = 100
MASKED_ELEMENTS = 2**20
_HOW_TO_SAVE = 'Save a dict: torch.save({"inputs": inputs, "targets": targets}, path).'


@dataclass(frozen=True, slots=True)
class Dataset:
    """Samples in file order; integer targets are int64, as torch's criteria want them."""

    inputs: Tensor
    """[samples, ...]"""
    targets: Tensor
    """[samples, ...]"""

    @property
    def samples(self) -> int:
        """Number of samples."""
        return len(self.targets)

    @property
    def classes(self) -> int | None:
        """Largest class number plus one, where targets are class numbers."""
        return None if self.targets.is_floating_point() else int(self.targets.max()) + 1

    @property
    def facts(self) -> dict[str, object]:
        """What a person wants to know of it."""
        return {
            "samples": self.samples,
            "input_shape": list(self.inputs.shape[1:]),
            "input_dtype": _short(self.inputs.dtype),
            "target_shape": list(self.targets.shape[1:]),
            "target_dtype": _short(self.targets.dtype),
            "classes": self.classes,
        }


def to_model_input(batch: Tensor, scale: float | None, mean: float | None, std: float | None) -> Tensor:
    """Batch as the network gets it: untouched, or float32 times `scale`, minus `mean`, divided by `std`."""
    if scale is None and mean is None and std is None:
        return batch
    batch = batch.to(torch.float32)
    if scale is not None:
        batch = batch * scale
    if mean is not None:
        batch = batch - mean
    return batch if std is None else batch / std


def container_of(path: Path) -> str | None:
    """`pt`, `safetensors` or `npz`, judged by the bytes; None where it can hold no data set."""
    if tensor_files.is_torch_file(path):
        return "pt"
    if tensor_files.is_safetensors(path):
        return "safetensors"
    return "npz" if _is_npz(path) else None


def read_dataset(path: Path) -> Dataset:
    """Read and check a data set.

    Raises:
        BadInput: It is damaged, lacks an entry, is empty, or holds what cannot be trained on.
        HostileFile: It claims more than it holds.

    """
    container = container_of(path)
    if container is None:
        raise _bad(path, "Not a data set", "The file is no .pt, .safetensors or .npz file, or it is damaged.")
    loaded: object
    if container == "pt":
        loaded = tensor_files.load_torch_file(path)
    elif container == "safetensors":
        loaded = tensor_files.load_safetensors(path)
    else:
        loaded = _load_npz(path)
    return dataset_from(path, loaded)


def dataset_from(path: Path, loaded: object) -> Dataset:
    """Check what a file held; raises as `read_dataset`."""
    if not isinstance(loaded, Mapping):
        raise _bad(path, "Not a data set", f"The file holds a {type(loaded).__name__}.")
    if loaded.keys() != KEYS:
        found = ", ".join(sorted(str(key)[:40] for key in loaded)[:5]) or "nothing"
        raise _bad(path, "Not a data set", f"The entries must be exactly 'inputs' and 'targets'; found: {found}.")
    inputs, targets = (_checked(path, name, loaded[name]) for name in ("inputs", "targets"))
    if len(inputs) != len(targets):
        raise _bad(path, "Lengths differ", f"There are {len(inputs)} inputs but {len(targets)} targets.")
    if not len(inputs) or not inputs.numel():
        raise _bad(path, "Data set empty", "There is no sample in it.")
    return Dataset(inputs=inputs, targets=targets if targets.is_floating_point() else targets.to(torch.int64))


def _checked(path: Path, name: str, value: object) -> Tensor:
    if isinstance(value, Mapping):
        raise _bad(path, "Several inputs", f"'{name}' is a dict; several inputs are not supported yet.")
    if not isinstance(value, Tensor):
        raise _bad(path, "Not a tensor", f"'{name}' is a {type(value).__name__}, not a tensor.")
    if value.dtype is torch.bool or value.is_complex():
        raise _bad(path, "Type of data", f"'{name}' is {_short(value.dtype)}; numbers are needed, real or integer.")
    tensor_files.check_plain(name, value)
    if value.dim() == 0:
        raise _bad(path, "Not a list of samples", f"'{name}' is a single number.")
    if value.is_floating_point():
        _check_finite(path, name, value)
    return value.detach().contiguous()


def _check_finite(path: Path, name: str, value: Tensor) -> None:
    """Look at some samples at a time: masks over all of them would take half as much memory again."""
    count, first = 0, None
    rows = max(1, MASKED_ELEMENTS * len(value) // max(1, value.numel()))
    for start in range(0, len(value), rows):
        bad = ~torch.isfinite(value[start : start + rows])
        found = int(bad.sum())
        if found and first is None:
            row, *place = bad.nonzero()[0].tolist()
            first = [start + row, *place]
        count += found
    if count:
        raise _bad(path, "Not finite", f"'{name}' has {count} values that are NaN or infinite, the first at {first}.")


def _is_npz(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return False
    return bool(names) and all(name.endswith(".npy") for name in names)


def _load_npz(path: Path) -> dict[str, object]:
    try:
        with zipfile.ZipFile(path) as archive:
            infos = archive.infolist()
            unpacked_bytes = sum(info.file_size for info in infos)
            if unpacked_bytes > max(FREE_UNPACKED_BYTES, MAX_UNPACKED_RATIO * path.stat().st_size):
                raise HostileFile(f"The file would unpack to {unpacked_bytes} bytes, far more than data compresses.")
            for info in infos:
                _check_declared_size(archive, info)
        with np.load(path, allow_pickle=False) as arrays:
            return {name: torch.from_numpy(arrays[name]) for name in arrays.files}
    except HostileFile:
        raise
    except TypeError as error:
        raise _bad(path, "Type of data", f"torch cannot hold these arrays: {error}.") from None
    except (zipfile.BadZipFile, ValueError, EOFError, OSError, NotImplementedError) as error:
        if "Object arrays" in str(error):
            raise _bad(path, "Type of data", "The file holds Python objects; only numbers are read.") from None
        raise tensor_files.damaged(path) from None


def _check_declared_size(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> None:
    """Hold the shape in an array's header against the bytes of its entry, before numpy allocates it."""
    with archive.open(info) as file:
        version = np.lib.format.read_magic(file)
        read_header = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }.get(version)
        if read_header is None:
            raise ValueError(f"unknown version {version}")
        shape, _, dtype = read_header(file)
    if any(size < 0 for size in shape) or (
        not dtype.hasobject and int(np.prod(shape, dtype=object)) * dtype.itemsize > info.file_size
    ):
        raise HostileFile(f"The array '{info.filename[:60]}' claims the shape {shape}, but the file has fewer bytes.")


def _bad(path: Path, title: str, message: str) -> BadInput:
    return BadInput.of(title, field=path.name, message=message, remedy=_HOW_TO_SAVE)


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
