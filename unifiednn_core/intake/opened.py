"""What a data file holds, looked at some samples at a time, so that no file is ever in memory as a whole."""

import gc
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from unifiednn_core.views.data import DataNotes

NO_NOTES = DataNotes()
BLOCK_ELEMENTS = 2**19
_YOUNG = 1  # generations of the garbage collector


@dataclass(frozen=True, slots=True)
class Opened:
    """Named entries of a file. Mapped ones take memory only where they are looked at."""

    entries: Mapping[str, Any]
    """Nothing of it is checked."""
    notes: DataNotes = NO_NOTES
    again: Callable[[], Mapping[str, Any]] | None = None
    """Maps the file anew; None where the entries lie in memory already."""


def aligned(tensor: Tensor) -> Tensor:
    """Contiguous tensor that lies where its type may lie; a file can have it anywhere."""
    tensor = tensor.detach().contiguous()
    return tensor if tensor.data_ptr() % tensor.element_size() == 0 else tensor.clone()


def rows_per_block(tensor: Tensor) -> int:
    """Samples that are looked at together."""
    return max(1, BLOCK_ELEMENTS * len(tensor) // max(1, tensor.numel()))


def blocks(opened: Opened, name: str) -> Iterator[tuple[int, Tensor]]:
    """First sample and samples of each part of an entry, in file order.

    The file is mapped anew for each, because pages that were looked at count as memory until they are unmapped.
    """
    rows, samples = rows_per_block(opened.entries[name]), len(opened.entries[name])
    for start in range(0, samples, rows):
        yield start, aligned(mapped_anew(opened, name)[start : start + rows])


def mapped_anew(opened: Opened, name: str) -> Tensor:
    """An entry through a mapping of its own, whose pages are given back with it."""
    if opened.again is None:
        entry: Tensor = opened.entries[name]
        return entry
    gc.collect(_YOUNG)  # torch.load leaves cycles behind that hold the mapping before
    found: Tensor = opened.again()[name]
    return found
