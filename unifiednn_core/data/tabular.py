"""Reads and converts tables and texts: opened, planned, fitted, then encoded block by block."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch

from unifiednn_core.base.errors import BadInput
from unifiednn_core.data import cells, jsonl, tables
from unifiednn_core.data.fitting import RowEncoder, Tokenizer, fitted
from unifiednn_core.data.parts import Opened
from unifiednn_core.data.proposal import propose
from unifiednn_core.data.tables import TableSource
from unifiednn_core.data.tokenizer_file import TokenizerFile, WordTokenizer
from unifiednn_core.data.values import DataNotes
from unifiednn_core.formats import zips
from unifiednn_core.formats.tensor_files import ALIGNMENT_BYTES, safetensors_header, safetensors_metadata
from unifiednn_core.spec.columns import MAX_COLUMNS, NO_TABLE_OPTIONS, WORDS, ColumnPlan, TableImportOptions, TextColumn

MAX_TABLE_BYTES = 16 * 1024**3  # of the converted numbers
MAX_READ_BYTES = 1024**3  # of the numbers, if the table is not converted first
Files = Callable[[str], Path]  # returns the file of the library with this hash
Blocks = Iterator[dict[str, cells.Array]]


@dataclass(frozen=True, slots=True)
class _Ready:
    """A table that can be written: `layout` has type and shape of each entry, with all samples."""

    layout: dict[str, tuple[torch.dtype, tuple[int, ...]]]
    notes: DataNotes
    blocks: Callable[[], Blocks]


def read_table(path: Path) -> Opened:
    """Read a whole table; raises `BadInput` or `HostileFile`."""
    ready = _ready(path, NO_TABLE_OPTIONS, _no_files, MAX_READ_BYTES)
    entries = {name: torch.empty(shape, dtype=dtype) for name, (dtype, shape) in ready.layout.items()}
    at = dict.fromkeys(entries, 0)
    for block in ready.blocks():
        for name, values in block.items():
            entries[name].numpy()[at[name] : at[name] + len(values)] = values
            at[name] += len(values)
    return Opened(entries, ready.notes)


def convert_table(
    path: Path, target: Path, wish: TableImportOptions = NO_TABLE_OPTIONS, files: Files | None = None
) -> None:
    """Write a table as safetensors, so that it is never in memory as a whole. Raises `BadInput`, `OSError`."""
    ready = _ready(path, wish, files or _no_files, MAX_TABLE_BYTES)
    header = safetensors_header(ready.layout, ready.notes.metadata(), ALIGNMENT_BYTES)
    at, end = {}, len(header)
    for name, (dtype, shape) in ready.layout.items():
        at[name], end = end, end + math.prod(shape) * dtype.itemsize
    with target.open("wb") as file:
        file.write(header)
        for block in ready.blocks():
            for name, values in block.items():
                file.seek(at[name])
                at[name] += file.write(values.tobytes())


def _ready(path: Path, wish: TableImportOptions, files: Files, most_bytes: int) -> _Ready:
    plan = wish.plan
    if wish.like:
        plan = DataNotes.of(safetensors_metadata(files(wish.like))).plan
        if plan is None:
            message = "The other data set was not a table, or was imported before plans were kept."
            raise BadInput.of("No plan", path.name, message, "Import its original file again, and name the result.")
    source = _opened(path, wish, plan)
    if plan is None:
        plan = _text_plan(wish) if source.origin == "text" else propose(source, wish)

    @cache
    def of_file(sha256: str, pad: int | None) -> TokenizerFile:
        return TokenizerFile(files(sha256), pad)

    def tokenizers(column: TextColumn) -> Tokenizer:
        return WordTokenizer(column) if column.tokenizer == WORDS else of_file(column.tokenizer, column.pad)

    plan, rows, tokens = fitted(plan, source, tokenizers)
    encoder = RowEncoder(plan, source, tokenizers)
    stream = next((column for column in plan.used() if column.kind == "text" and column.stream), None)
    length = 0 if stream is None else stream.length or 1
    samples = rows if stream is None else tokens // length
    if not samples:
        message = f"The text has {tokens:,} tokens, too few for one sample of {length:,}."
        raise source.bad("Too short", message, "Give a smaller length, or more text.")
    typed = {name: (_TYPES[kind], (samples, *shape)) for name, (kind, shape) in encoder.layout.items()}
    layout = dict(sorted(typed.items(), key=lambda entry: (entry[0] == "targets", -entry[1][0].itemsize)))  # aligned
    _check_size(source, layout, most_bytes)

    def blocks() -> Blocks:
        if stream is None:
            yield from _rows(source, encoder, samples)
        else:
            yield from _sequences(encoder, samples, length)

    return _Ready(layout, encoder.notes(), blocks)


def _opened(path: Path, wish: TableImportOptions, plan: ColumnPlan | None) -> TableSource:
    if tables.is_parquet(path):
        return tables.open_parquet(path)
    if not wish.text and jsonl.is_jsonl(path):
        return jsonl.open_jsonl(path, () if plan is None else tuple(column.name for column in plan.used()))
    if not wish.text and tables.is_csv(path):
        return tables.open_csv(path, wish.header if plan is None else plan.header)
    return tables.open_text(path)


def _text_plan(wish: TableImportOptions) -> ColumnPlan:
    column = TextColumn(
        kind="text",
        name=tables.COLUMN,
        tokenizer=wish.tokenizer or WORDS,
        length=wish.length,
        vocabulary=wish.vocabulary,
        stream=True,
    )
    return ColumnPlan(columns=(column,))


def _rows(source: TableSource, encoder: RowEncoder, samples: int) -> Blocks:
    done = 0
    for row, block in source.blocks():
        done += block.num_rows
        if done > samples:
            break
        yield encoder.encode(block, row)
    if done != samples:
        raise source.bad("File changed", "The file changed while it was read.", "Import it again.")


def _sequences(encoder: RowEncoder, samples: int, length: int) -> Blocks:
    """Cut a stream into samples; what is left at its end is dropped."""
    left, entry = np.empty(0, np.int64), next(iter(encoder.layout))
    for tokens in encoder.stream():
        left = np.concatenate([left, tokens])
        count = min(len(left) // length, samples)
        samples -= count
        yield {entry: left[: count * length].reshape(count, length)}
        left = left[count * length :]


def _check_size(source: TableSource, layout: dict[str, tuple[torch.dtype, tuple[int, ...]]], most_bytes: int) -> None:
    size_bytes = sum(math.prod(shape) * dtype.itemsize for dtype, shape in layout.values())
    most_bytes = min(most_bytes, zips.most_unpacked_bytes(source.path.stat().st_size))
    if size_bytes > most_bytes:
        message = f"The table would become {size_bytes:,} bytes of numbers; the limit for this file is {most_bytes:,}."
        remedy = (
            "Give a smaller length for texts, fewer columns, or save it as a .safetensors data set, which is mapped."
        )
        raise source.bad("Table too large", message, remedy)
    width = max((shape[1] for _, shape in layout.values() if len(shape) > 1), default=0)
    if width > 4 * MAX_COLUMNS:
        raise source.bad("Columns", f"One sample has {width:,} numbers.", "Leave columns out, or do not use one_hot.")


def _no_files(sha256: str) -> Path:
    raise BadInput.of("Tokenizer", sha256[:12], "This needs a file of the library.", "Import this file, too.")


_TYPES: dict[type[np.generic], torch.dtype] = {np.int64: torch.int64, np.float32: torch.float32, np.uint8: torch.uint8}
