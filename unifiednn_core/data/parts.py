"""Data sets inside of one file, read block by block, so that none is in memory as a whole."""

import gc
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unifiednn_core.data.values import DataNotes, ImportOptions
from unifiednn_core.formats.tensor_files import bad_file

NO_NOTES = DataNotes()
BLOCK_ELEMENTS = 2**19


@dataclass(frozen=True, slots=True)
class Opened:
    """Named entries of a file. Only the parts of mapped entries that were read take memory."""

    entries: Mapping[str, Any]  # unchecked
    notes: DataNotes = NO_NOTES
    again: Callable[[], Mapping[str, Any]] | None = None
    """Maps the file again; None if the entries are in memory already."""


def aligned(tensor: Tensor) -> Tensor:
    """Make a tensor contiguous and aligned for its type."""
    tensor = tensor.detach().contiguous()
    return tensor if tensor.data_ptr() % tensor.element_size() == 0 else tensor.clone()


def rows_per_block(tensor: Tensor) -> int:
    """Samples in one block."""
    return max(1, BLOCK_ELEMENTS * len(tensor) // max(1, tensor.numel()))


def blocks(opened: Opened, name: str) -> Iterator[tuple[int, Tensor]]:
    """Yield the index of the first sample and the samples of each block of an entry, in file order.

    The file is mapped again for each block: pages that were read count as memory until they are unmapped.
    """
    rows, samples = rows_per_block(opened.entries[name]), len(opened.entries[name])
    for start in range(0, samples, rows):
        yield start, aligned(mapped_anew(opened, name)[start : start + rows])


def mapped_anew(opened: Opened, name: str) -> Tensor:
    """Return an entry through a new mapping, which frees its pages when it is deleted."""
    if opened.again is not None:
        gc.collect(1)  # torch.load leaves cycles that keep the previous mapping alive
    found: Tensor = (opened.again() if opened.again is not None else opened.entries)[name]
    return found


TRAIN, VALIDATION, TEST = "train", "val", "test"
PART_NAMES = {
    **dict.fromkeys(("train", "training", "trn"), TRAIN),
    **dict.fromkeys(("val", "valid", "validation", "dev"), VALIDATION),
    **dict.fromkeys(("test", "testing", "t10k", "tst"), TEST),
}
"""Words for a part in names of folders, files and arrays."""
ORDER = (TRAIN, VALIDATION, TEST)
MAX_READ_BYTES = 2 * 1024**3
"""Of a data set that is read without being converted first."""
SPARE_BYTES = 256 * 1024**2
_GIB = 1024**3
_IN_LIBRARY = "Add the file to the library, which keeps a data set of each part, and name those in the run."
Rows = Callable[[str, int, int], Tensor]
"""Returns samples of an entry by first and end. Callers ask in ascending order, one entry after the other."""


@dataclass(frozen=True, slots=True)
class DataPart:
    """One data set of a file."""

    like: Mapping[str, Tensor]  # type and shape of each entry; maybe on the device "meta"
    rows: Rows
    notes: DataNotes = NO_NOTES

    @property
    def samples(self) -> int:
        """Number of samples."""
        return len(next(iter(self.like.values())))

    @property
    def size_bytes(self) -> int:
        """Bytes of all entries when they are written."""
        return sum(entry.numel() * entry.element_size() for entry in self.like.values())

    def blocks(self, name: str) -> Iterator[Tensor]:
        """Yield an entry in file order, some samples at a time."""
        entry = self.like[name]
        step = rows_per_block(entry) if len(entry) else 1
        for start in range(0, len(entry), step):
            yield self.rows(name, start, min(len(entry), start + step))


Parts = Mapping[str, DataPart]
"""By name: "train", "val" and "test", or one that is named ""."""


def in_order(parts: Mapping[str, DataPart]) -> Parts:
    """The parts, training first, each with its name in its notes."""
    names = sorted(parts, key=lambda name: ORDER.index(name) if name in ORDER else -1)
    return {
        name: replace(parts[name], notes=parts[name].notes.model_copy(update={"part": name})) if name else parts[name]
        for name in names
    }


def of_opened(opened: Opened) -> DataPart:
    """A part whose entries are tensors, mapped or in memory."""

    def rows(name: str, start: int, end: int) -> Tensor:
        return aligned(mapped_anew(opened, name)[start:end])

    return DataPart(opened.entries, rows, opened.notes)


def opened_whole(path: Path, parts: Parts) -> Opened:
    """Read the only data set of a file into memory; raises `BadInput` if there are several, or for a large one."""
    if len(parts) > 1:
        message = f"The file holds {len(parts)} data sets: {', '.join(parts)}."
        raise bad_file(path, "Several parts", message, _IN_LIBRARY)
    part = next(iter(parts.values()))
    if part.size_bytes > MAX_READ_BYTES:
        message = f"It would take {part.size_bytes / _GIB:.1f} GiB of memory."
        raise bad_file(path, "Too large", message, _IN_LIBRARY)
    entries = {}
    for name, like in part.like.items():
        entries[name] = torch.empty(like.shape, dtype=like.dtype)
        done = 0
        for block in part.blocks(name):
            entries[name][done : done + len(block)] = block
            done += len(block)
    return Opened(entries, part.notes)


def with_channels_first(path: Path, parts: Parts) -> Parts:
    """The parts with inputs [samples, height, width, channels] made [samples, channels, height, width]."""
    return {name: _moved(path, part) for name, part in parts.items()}


def _moved(path: Path, part: DataPart) -> DataPart:
    moved = [name for name, entry in part.like.items() if name.partition(".")[0] == "inputs" and entry.dim() == 4]
    if not moved:
        message = "No inputs are [samples, height, width, channels], so there are no channels to move."
        raise bad_file(path, "Channels", message, "Import it without --channels-last.")

    def rows(name: str, start: int, end: int) -> Tensor:
        found = part.rows(name, start, end)
        return found.permute(0, 3, 1, 2).contiguous() if name in moved else found

    like = {name: entry.permute(0, 3, 1, 2) if name in moved else entry for name, entry in part.like.items()}
    remark = "Channels were moved from the last dimension to the first of each sample."
    notes = part.notes.model_copy(update={"remarks": (*part.notes.remarks, remark)})
    return DataPart(like, rows, notes)


def check_room(path: Path, parts: Parts, folder: Path) -> None:
    """Refuse data that would fill the disk of `folder`; raises `BadInput`."""
    needed_bytes = sum(part.size_bytes for part in parts.values())
    free_bytes = shutil.disk_usage(folder).free - SPARE_BYTES
    if needed_bytes > free_bytes:
        message = f"It takes {needed_bytes / _GIB:.1f} GiB once decoded; {max(0, free_bytes) / _GIB:.1f} GiB are free."
        raise bad_file(path, "Too large", message, "Give fewer samples, or smaller images (--size).")


def refuse_size(path: Path, options: ImportOptions) -> None:
    """Refuse a size for data that are not decoded images; raises `BadInput`."""
    if options.size is not None:
        message = "These are tensors; only PNG and JPEG images are resized on import."
        raise bad_file(path, "Size of images", message, "Import it without --size; a run can resize its batches.")
