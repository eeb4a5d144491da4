"""Content of a data file, read some samples at a time, so that no file is in memory as a whole."""

import gc
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from unifiednn_core.data.values import DataNotes

NO_NOTES = DataNotes()
BLOCK_ELEMENTS = 2**19
_YOUNG = 1  # generations of the garbage collector


@dataclass(frozen=True, slots=True)
class Opened:
    """Named entries of a file. Mapped entries take memory only where they are read."""

    entries: Mapping[str, Any]
    """Unchecked."""
    notes: DataNotes = NO_NOTES
    again: Callable[[], Mapping[str, Any]] | None = None
    """Maps the file again; None if the entries are in memory already."""


def aligned(tensor: Tensor) -> Tensor:
    """Make a tensor contiguous and aligned for its type; in a file it can lie anywhere."""
    tensor = tensor.detach().contiguous()
    return tensor if tensor.data_ptr() % tensor.element_size() == 0 else tensor.clone()


def rows_per_block(tensor: Tensor) -> int:
    """Samples in one block."""
    return max(1, BLOCK_ELEMENTS * len(tensor) // max(1, tensor.numel()))


def blocks(opened: Opened, name: str) -> Iterator[tuple[int, Tensor]]:
    """Iterate over the first sample and the samples of each block of an entry, in file order.

    The file is mapped again for each block, because pages count as memory from the first read until they are unmapped.
    """
    rows, samples = rows_per_block(opened.entries[name]), len(opened.entries[name])
    for start in range(0, samples, rows):
        yield start, aligned(mapped_anew(opened, name)[start : start + rows])


def mapped_anew(opened: Opened, name: str) -> Tensor:
    """Return an entry through a mapping of its own, which takes its pages along when it goes."""
    if opened.again is None:
        entry: Tensor = opened.entries[name]
        return entry
    gc.collect(_YOUNG)  # torch.load leaves cycles behind that hold the mapping before
    found: Tensor = opened.again()[name]
    return found
