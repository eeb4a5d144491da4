"""Data sets: one tensor of inputs and one of targets, mapped from `.pt`, `.safetensors` or `.npz`, or decoded."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unifiednn_core.base.errors import BadInput
from unifiednn_core.data import images, jsonl, npz, tables, tabular
from unifiednn_core.data.opened import NO_NOTES, Opened, aligned, blocks
from unifiednn_core.data.values import DataNotes
from unifiednn_core.formats import tensor_files
from unifiednn_core.formats.weights import state_sha256

KEYS = frozenset({"inputs", "targets"})
_HOW_TO_SAVE = 'Save a dict: torch.save({"inputs": inputs, "targets": targets}, path).'


@dataclass(frozen=True, slots=True)
class Dataset:
    """Samples in file order. For the criteria of torch, class numbers are int64 and real targets at most float32."""

    inputs: Tensor  # [samples, ...]
    targets: Tensor  # [samples, ...]
    notes: DataNotes = NO_NOTES  # facts about the original file
    checksum: str | None = None  # `sha256` when it was read; None if nobody asked for it

    @property
    def samples(self) -> int:
        """Number of samples."""
        return len(self.targets)

    def batch(self, samples: Tensor | slice) -> tuple[Tensor, Tensor]:
        """Copy the inputs and targets of some samples, given as indices or as a range.

        A network gets nothing but such copies, because it may write into its input, and others share the data set.
        """
        if isinstance(samples, Tensor):
            return self.inputs.index_select(0, samples), self.targets.index_select(0, samples)
        kept = torch.contiguous_format
        return self.inputs[samples].clone(memory_format=kept), self.targets[samples].clone(memory_format=kept)

    def sha256(self) -> str:
        """SHA-256 of both tensors as they are now; about 0.5 s per GiB where the processor knows SHA, else 2 s."""
        return state_sha256({"inputs": self.inputs, "targets": self.targets})

    def checksummed(self) -> "Dataset":
        """The same data set with its checksum."""
        return self if self.checksum is not None else replace(self, checksum=self.sha256())

    @property
    def classes(self) -> int | None:
        """Largest class number plus one; None for real targets."""
        return None if self.targets.is_floating_point() else int(self.targets.max()) + 1

    @property
    def facts(self) -> dict[str, object]:
        """Facts for people and programs: numbers, shapes, types and classes."""
        return {
            "samples": self.samples,
            "input_shape": list(self.inputs.shape[1:]),
            "input_dtype": _short(self.inputs.dtype),
            "target_shape": list(self.targets.shape[1:]),
            "target_dtype": _short(self.targets.dtype),
            "classes": self.classes,
        }


def to_model_input(batch: Tensor, scale: float | None, mean: float | None, std: float | None) -> Tensor:
    """Make the input of a network: the batch, or in float32 times `scale`, minus `mean`, divided by `std`."""
    if scale is None and mean is None and std is None:
        return batch
    batch = batch.to(torch.float32)
    if scale is not None:
        batch = batch * scale
    if mean is not None:
        batch = batch - mean
    return batch if std is None else batch / std


def container_of(path: Path) -> str | None:
    """Name the container of a file by its bytes; None if it cannot hold a data set."""
    return next((name for name, (sniff, _) in _CONTAINERS.items() if sniff(path)), None)


def open_data(path: Path) -> Opened:
    """Open a data file without checking its content. Raises `BadInput` or `HostileFile`."""
    container = container_of(path)
    if container is None:
        message = "The file is damaged, or it is not a .pt, .safetensors, .npz, .csv, .parquet or zip of images."
        raise _bad(path, "Not a data set", message)
    return _CONTAINERS[container][1](path)


def read_dataset(path: Path) -> Dataset:
    """Read and check a data set; raises `BadInput`, or `HostileFile` if it claims more than the file holds."""
    opened = open_data(path)
    found = opened.entries
    if found.keys() != KEYS:
        named = ", ".join(sorted(str(key)[:40] for key in found)[:5]) or "nothing"
        raise _bad(path, "Not a data set", f"The entries must be exactly 'inputs' and 'targets'; found: {named}.")
    for name in sorted(KEYS):
        _check(path, name, found[name])
    inputs, targets = found["inputs"], found["targets"]
    if len(inputs) != len(targets):
        raise _bad(path, "Lengths differ", f"There are {len(inputs)} inputs but {len(targets)} targets.")
    if not inputs.numel() or not targets.numel():
        raise _bad(path, "Data set empty", "It has no samples.")
    for name in sorted(KEYS):
        if found[name].is_floating_point():
            _check_finite(path, name, opened)
    return Dataset(aligned(inputs), as_targets(aligned(targets)), opened.notes)


def as_targets(stored: Tensor) -> Tensor:
    """Convert targets for the criteria of torch: integers to int64, float64 to float32."""
    if not stored.is_floating_point():
        return stored.to(torch.int64)
    return stored.to(torch.float32) if stored.dtype is torch.float64 else stored


def _check(path: Path, name: str, value: object) -> None:
    if isinstance(value, Mapping):
        raise _bad(path, "Several inputs", f"'{name}' is a dict; several inputs are not supported yet.")
    if not isinstance(value, Tensor):
        raise _bad(path, "Not a tensor", f"'{name}' is a {type(value).__name__}, not a tensor.")
    if value.dtype is torch.bool or value.is_complex():
        raise _bad(path, "Type of data", f"'{name}' is {_short(value.dtype)}; real or integer numbers are needed.")
    tensor_files.check_plain(name, value)
    if value.dim() == 0:
        raise _bad(path, "Not a list of samples", f"'{name}' is a single number.")


def _check_finite(path: Path, name: str, opened: Opened) -> None:
    count, first = 0, None
    for start, samples in blocks(opened, name):
        bad = ~torch.isfinite(samples)
        found = int(bad.sum())
        if found and first is None:
            row, *place = bad.nonzero()[0].tolist()
            first = [start + row, *place]
        count += found
    if count:
        values = f"{count:,} values that are" if count > 1 else "a value that is"
        message = f"'{name}' has {values} NaN or infinite, the first at {first} (sample, then index in it, from 0)."
        remedy = "Replace such values, or leave their samples out; the largest number of float32 is 3.4e38."
        raise tensor_files.bad_file(path, "Not finite", message, remedy)


def _open_torch_file(path: Path) -> Opened:
    def load() -> Mapping[str, Any]:
        loaded = tensor_files.load_torch_file(path)
        if not isinstance(loaded, Mapping):
            raise _bad(path, "Not a data set", f"The file holds a {type(loaded).__name__}.")
        return loaded

    return Opened(load(), again=load)


def _open_safetensors(path: Path) -> Opened:
    notes = DataNotes.of(tensor_files.safetensors_metadata(path))
    return Opened(tensor_files.load_safetensors(path), notes, again=lambda: tensor_files.load_safetensors(path))


def _open_npz(path: Path) -> Opened:
    return Opened(npz.load_npz(path), again=None if npz.is_compressed(path) else lambda: npz.load_npz(path))


_CONTAINERS: dict[str, tuple[Callable[[Path], bool], Callable[[Path], Opened]]] = {
    "pt": (tensor_files.is_torch_file, _open_torch_file),
    "safetensors": (tensor_files.is_safetensors, _open_safetensors),
    "npz": (npz.is_npz, _open_npz),
    "parquet": (tables.is_parquet, tabular.read_table),
    "images": (images.holds_images, images.read_images),
    "csv": (tables.is_csv, tabular.read_table),
    "jsonl": (jsonl.is_jsonl, tabular.read_table),
}


def _bad(path: Path, title: str, message: str) -> BadInput:
    return tensor_files.bad_file(path, title, message, _HOW_TO_SAVE)


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
