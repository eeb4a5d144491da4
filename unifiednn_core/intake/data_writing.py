"""Data sets written as safetensors, some samples at a time: equal samples and notes give equal bytes.

The header is padded so that the inputs lie at a multiple of 64 bytes, as torch's own memory does.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from torch import Tensor

from unifiednn_core.checkpoints import container
from unifiednn_core.intake.datasets import Dataset
from unifiednn_core.intake.opened import rows_per_block
from unifiednn_core.views.data import DataNotes

ALIGNMENT_BYTES = 64
_LENGTH_BYTES = 8
Rows = Callable[[str, int, int], Tensor]
"""Samples of an entry from one place to another, of the type that is written."""


def write_dataset(path: Path, dataset: Dataset, notes: DataNotes) -> None:
    """Write a data set as it is; raises `OSError`."""
    entries = {"inputs": dataset.inputs, "targets": dataset.targets}
    write_rows(path, entries, dataset.samples, lambda name, start, end: entries[name][start:end], notes)


def write_rows(path: Path, like: dict[str, Tensor], samples: int, rows: Rows, notes: DataNotes) -> None:
    """Write `samples` samples that `rows` gives, of the types and shapes of the entries in `like`; raises `OSError`."""
    with path.open("wb") as file:
        _write_header(file, like, samples, notes)
        for name, entry in like.items():
            for start, end in _parts(entry, samples):
                file.write(container.raw(container.plain(name, rows(name, start, end))))


def _parts(entry: Tensor, samples: int) -> Iterator[tuple[int, int]]:
    step = rows_per_block(entry)
    for start in range(0, samples, step):
        yield start, min(samples, start + step)


def _write_header(file: BinaryIO, like: dict[str, Tensor], samples: int, notes: DataNotes) -> None:
    header: dict[str, object] = {"__metadata__": notes.metadata()}
    end = 0
    for name, entry in like.items():
        sizes = [samples, *entry.shape[1:]]
        begin, end = end, end + entry.numel() // len(entry) * samples * entry.element_size()
        header[name] = {"dtype": container.dtype_name(entry), "shape": sizes, "data_offsets": [begin, end]}
    document = json.dumps(header, separators=(",", ":")).encode()
    document += b" " * (-(len(document) + _LENGTH_BYTES) % ALIGNMENT_BYTES)
    file.write(len(document).to_bytes(_LENGTH_BYTES, "little"))
    file.write(document)
