"""Converts data sets that cannot be mapped to safetensors. Equal samples and notes give equal bytes."""

from collections.abc import Callable
from pathlib import Path

from torch import Tensor

from unifiednn_core.base.errors import BadInput
from unifiednn_core.data import npz, plain_text, tabular
from unifiednn_core.data.datasets import container_of, read_dataset
from unifiednn_core.data.opened import rows_per_block
from unifiednn_core.data.values import DataNotes
from unifiednn_core.formats import registry
from unifiednn_core.formats.tensor_files import ALIGNMENT_BYTES, raw, safetensors_header
from unifiednn_core.spec.columns import TableWish

TABLES = ("csv", "jsonl", "parquet")
CONVERTED = (*TABLES, "images")
Rows = Callable[[str, int, int], Tensor]  # returns samples of an entry by first and end, in the type to write


def settled(path: Path, filename: str, wish: TableWish) -> TableWish:
    """Say of a file that is no table whether it is read as plain text; raises `BadInput` if a wish does not apply."""
    if wish.text or container_of(path) in TABLES:
        return wish
    known = container_of(path) is not None or registry.sniff(path) is not None
    if not known and (wish != tabular.NO_WISH or filename.lower().endswith(plain_text.SUFFIXES)):
        return wish.model_copy(update={"text": True})
    if wish != tabular.NO_WISH:
        message = "The file is neither a table nor a text, so nothing can be said about columns and tokens."
        raise BadInput.of("Not a table", filename, message, "Import it without these options.")
    return wish


def is_needed(path: Path, wish: TableWish = tabular.NO_WISH) -> bool:
    """Whether the file holds a data set that cannot be mapped; raises `HostileFile`."""
    if wish.text:
        return True
    container = container_of(path)
    if container == "npz":
        return npz.is_compressed(path)
    return container in CONVERTED and registry.sniff(path) is None


def convert(path: Path, target: Path, wish: TableWish = tabular.NO_WISH, files: tabular.Files | None = None) -> None:
    """Write the data set of a file as safetensors; raises `BadInput`, `HostileFile` or `OSError`.

    `files` finds a file of the library by its hash, if the wish names one.
    """
    if wish.text or container_of(path) in TABLES:
        tabular.convert_table(path, target, wish, files)
        return
    dataset = read_dataset(path)
    notes = dataset.notes.model_copy(update={"origin": dataset.notes.origin or container_of(path) or ""})
    entries = dataset.entries
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
