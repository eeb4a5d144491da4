"""Content of a data file, read in blocks of samples, so that no file is in memory as a whole."""

import gc
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from unifiednn_core.data.values import DataNotes

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
