"""Data sets: named tensors of inputs and one of targets, mapped from `.pt`, `.safetensors` or `.npz`, or decoded."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from unifiednn_core.base.errors import BadInput
from unifiednn_core.data.batch import Batch
from unifiednn_core.data.containers import open_data
from unifiednn_core.data.parts import NO_NOTES, Opened, aligned, blocks, rows_per_block
from unifiednn_core.data.values import DataNotes
from unifiednn_core.formats import tensor_files
from unifiednn_core.formats.weights import state_sha256

INPUTS, TARGETS = "inputs", "targets"
_HOW_TO_SAVE = 'Save a dict: torch.save({"inputs": inputs, "targets": targets}, path).'


class DataSource(Protocol):
    """What trainings take their samples from: a `Dataset` in memory, or one that is `streamed` from its file."""

    @property
    def inputs(self) -> Mapping[str, Tensor]:
        """Inputs by name, each [samples, ...]."""

    @property
    def targets(self) -> Tensor | None:
        """Targets, [samples, ...]; None if they follow from the inputs."""

    @property
    def samples(self) -> int:
        """Number of samples."""

    @property
    def device(self) -> torch.device:
        """Where its batches are."""

    @property
    def resident_bytes(self) -> int:
        """Bytes of its tensors in memory."""

    @property
    def intact(self) -> bool:
        """Whether it has the bytes that it was read with."""

    def to(self, device: torch.device) -> "DataSource":
        """The same samples on a device."""

    def batch(self, samples: Tensor | slice) -> Batch:
        """Copy some samples."""

    def rows(self, entry: str, samples: slice) -> Tensor:
        """Some samples of one input, or of `TARGETS`; maybe a view."""

    def expect(self, upcoming: Iterable[Tensor | slice]) -> None:
        """Prepare for batches of these samples."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """Samples in file order. In batches and rows, class numbers are int64 and real targets at most float32."""

    inputs: Mapping[str, Tensor]  # each [samples, ...]; a single one is named "inputs", several are sorted by name
    targets: Tensor | None  # [samples, ...], of the type in the file; None if they follow from the inputs
    notes: DataNotes = NO_NOTES  # facts about the original file
    checksum: str | None = None  # `sha256` when it was read; None if nobody asked for it

    @classmethod
    def of(cls, inputs: Tensor, targets: Tensor) -> "Dataset":
        """A data set of one input."""
        return cls({INPUTS: inputs}, targets)

    @property
    def samples(self) -> int:
        """Number of samples."""
        return len(self.first)

    @property
    def first(self) -> Tensor:
        """The first of its inputs."""
        return next(iter(self.inputs.values()))

    @property
    def device(self) -> torch.device:
        """Where all its tensors are."""
        return self.first.device

    @property
    def entries(self) -> dict[str, Tensor]:
        """All its tensors by their names in a file."""
        named = {entry_of(name): one for name, one in self.inputs.items()}
        return named if self.targets is None else {**named, TARGETS: self.targets}

    def to(self, device: torch.device) -> "Dataset":
        """The same data set on a device; itself if it is there already."""
        if self.device == device:
            return self
        inputs = {name: one.to(device) for name, one in self.inputs.items()}
        return replace(self, inputs=inputs, targets=None if self.targets is None else self.targets.to(device))

    def batch(self, samples: Tensor | slice) -> Batch:
        """Copy the inputs and targets of some samples, given as indices or as a range.

        A network gets nothing but such copies, because it may write into its input, and others share the data set.
        """

        def copied(one: Tensor) -> Tensor:
            if isinstance(samples, Tensor):
                return one.index_select(0, samples)
            return one[samples].clone(memory_format=torch.contiguous_format)

        inputs = {name: copied(one) for name, one in self.inputs.items()}
        return Batch(inputs, None if self.targets is None else as_targets(copied(self.targets)))

    def rows(self, entry: str, samples: slice) -> Tensor:
        """Some samples of one input, or of `TARGETS`; a view, except for another type."""
        if entry == TARGETS and self.targets is not None:
            return as_targets(self.targets[samples])
        return self.inputs[entry][samples]

    def expect(self, upcoming: Iterable[Tensor | slice]) -> None:
        """Nothing is read ahead: all samples are in memory."""

    @property
    def resident_bytes(self) -> int:
        """Bytes of its tensors in memory."""
        return sum(one.nbytes for one in self.entries.values())

    @property
    def intact(self) -> bool:
        """Whether it has the bytes that it was read with. Reads all of them: see `sha256`."""
        return self.checksum == self.sha256()

    def sha256(self) -> str:
        """SHA-256 of all tensors as they are now; about 0.5 s per GiB where the processor knows SHA, else 2 s."""
        return state_sha256(self.entries)

    def checksummed(self) -> "Dataset":
        """The same data set with its checksum."""
        return self if self.checksum is not None else replace(self, checksum=self.sha256())

    @property
    def classes(self) -> int | None:
        """Largest class number plus one; None for real targets, and without targets."""
        if self.targets is None or self.targets.is_floating_point():
            return None
        return max(int(block.max()) for block in in_blocks(self, TARGETS)) + 1

    @property
    def facts(self) -> dict[str, object]:
        """Facts for people and programs: shape and type of the first input, of all if there are several, and so on."""
        several = {name: f"{dtype_name(one.dtype)} {list(one.shape[1:])}" for name, one in self.inputs.items()}
        return {
            "samples": self.samples,
            "input_shape": list(self.first.shape[1:]),
            "input_dtype": dtype_name(self.first.dtype),
            "target_shape": None if self.targets is None else list(self.targets.shape[1:]),
            "target_dtype": None if self.targets is None else dtype_name(as_targets(self.targets[:0]).dtype),
            "classes": self.classes,
            **({"inputs": several} if len(several) > 1 else {}),
        }


def entry_of(name: str) -> str:
    """Name of the entry of a file that holds an input: `inputs`, or `inputs.NAME` for one of several."""
    return INPUTS if name == INPUTS else f"{INPUTS}.{name}"


def read_dataset(path: Path) -> Dataset:
    """Read and check a data set; raises `BadInput`, or `HostileFile` if it claims more than the file holds."""
    opened = open_data(path)
    found = opened.entries
    names = sorted(str(key) for key in found if str(key) == INPUTS or str(key).startswith(f"{INPUTS}."))
    if not names or found.keys() - {*names, TARGETS} or (INPUTS in names and len(names) > 1):
        named = ", ".join(sorted(str(key)[:40] for key in found)[:5]) or "nothing"
        raise _bad(path, "Not a data set", f"The entries must be exactly 'inputs' and 'targets'; found: {named}.")
    for name in found:
        _check(path, name, found[name])
    first = found[names[0]]
    for name in found:
        if len(found[name]) != len(first):
            lengths = f"There are {len(first)} {names[0]} but {len(found[name])} {name}."
            raise _bad(path, "Lengths differ", lengths)
        if not found[name].numel():
            raise _bad(path, "Data set empty", "It has no samples.")
    for name in sorted(found):
        if found[name].is_floating_point():
            _check_finite(path, name, opened)
    inputs = {name.removeprefix(f"{INPUTS}."): aligned(found[name]) for name in names}
    targets = aligned(found[TARGETS]) if TARGETS in found else None
    return Dataset(inputs, targets, opened.notes)


def in_blocks(data: DataSource, entry: str) -> Iterator[Tensor]:
    """One input, or `TARGETS`, block by block, so that nothing made of it is as large as the data set."""
    return (data.rows(entry, places) for places in places_of_blocks(data, entry))


def places_of_blocks(data: DataSource, entry: str) -> Iterator[slice]:
    """The samples of each block."""
    step = rows_per_block(data.targets if entry == TARGETS and data.targets is not None else data.inputs[entry])
    return (slice(start, start + step) for start in range(0, data.samples, step))


def targets_in_blocks(data: DataSource) -> Iterator[Tensor] | None:
    """The targets block by block; None if there are none."""
    return None if data.targets is None else in_blocks(data, TARGETS)


def as_targets(stored: Tensor) -> Tensor:
    """Convert targets for the criteria of torch: integers to int64, float64 to float32."""
    if not stored.is_floating_point():
        return stored.to(torch.int64)
    return stored.to(torch.float32) if stored.dtype is torch.float64 else stored


def _check(path: Path, name: str, value: object) -> None:
    if not isinstance(value, Tensor):
        raise _bad(path, "Not a tensor", f"'{name}' is a {type(value).__name__}, not a tensor.")
    if value.dtype is torch.bool or value.is_complex():
        raise _bad(path, "Type of data", f"'{name}' is {dtype_name(value.dtype)}; real or integer numbers are needed.")
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


def _bad(path: Path, title: str, message: str) -> BadInput:
    return tensor_files.bad_file(path, title, message, _HOW_TO_SAVE)


def dtype_name(dtype: torch.dtype) -> str:
    """Name of a type without its module, such as `float32`."""
    return str(dtype).removeprefix("torch.")
