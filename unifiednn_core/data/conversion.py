"""Converts data sets that cannot be mapped to safetensors. Equal samples and notes give equal bytes."""

from collections.abc import Callable
from pathlib import Path

from torch import Tensor

from unifiednn_core.data import npz, tabular
from unifiednn_core.data.datasets import container_of, read_dataset
from unifiednn_core.data.opened import rows_per_block
from unifiednn_core.data.values import DataNotes
from unifiednn_core.formats import registry
from unifiednn_core.formats.tensor_files import ALIGNMENT_BYTES, raw, safetensors_header

TABLES = ("csv", "jsonl", "parquet")
CONVERTED = (*TABLES, "images")
Rows = Callable[[str, int, int], Tensor]  # returns samples of an entry by first and end, in the type to write


def is_needed(path: Path) -> bool:
    """Whether the file holds a data set that cannot be mapped; raises `HostileFile`."""
    container = container_of(path)
    if container == "npz":
        return npz.is_compressed(path)
    return container in CONVERTED and registry.sniff(path) is None


def convert(path: Path, target: Path) -> None:
    """Write the data set of a file as safetensors; raises `BadInput`, `HostileFile` or `OSError`."""
    if container_of(path) in TABLES:
        tabular.convert_table(path, target)
        return
    dataset = read_dataset(path)
    notes = dataset.notes.model_copy(update={"origin": dataset.notes.origin or container_of(path) or ""})
    entries = {"inputs": dataset.inputs, "targets": dataset.targets}
    write_rows(target, entries, dataset.samples, lambda name, start, end: entries[name][start:end], notes)


def write_rows(path: Path, like: dict[str, Tensor], samples: int, rows: Rows, notes: DataNotes) -> None:
    """Write `samples` samples from `rows`, with the types and shapes of the entries in `like`; raises `OSError`."""
    layout = {name: (entry.dtype, (samples, *entry.shape[1:])) for name, entry in like.items()}
    with path.open("wb") as file:
        file.write(safetensors_header(layout, notes.metadata(), ALIGNMENT_BYTES))
        for name, entry in like.items():
            step = rows_per_block(entry)
            for start in range(0, samples, step):
                file.write(raw(rows(name, start, min(samples, start + step)).contiguous()))
