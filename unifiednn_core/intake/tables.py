"""Tables, CSV and Parquet: numeric columns become float32 inputs [samples, columns], one column the targets.

A table is gone through twice: once to count its rows and look at every value, once to take the numbers over.
"""

import csv
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from unifiednn_core.intake import zips
from unifiednn_core.intake.columns import NAME_THE_TARGET, Columns, bad, check_type, target_of
from unifiednn_core.intake.opened import Opened

MAX_TABLE_BYTES = 16 * 1024**3
"""Of the numbers, as they are kept."""
MAX_READ_BYTES = 1024**3
"""Of the numbers, where the table is not converted first."""
SNIFFED_BYTES = 2**20
_BATCH_ROWS = 2**14
_BUFFER_BYTES = 2**18
_DELIMITERS = ",;\t"
_FLOAT_BYTES = 4
_PARQUET = b"PAR1"


@dataclass(frozen=True, slots=True)
class Table:
    """A table all of whose values were looked at."""

    columns: Columns
    """Names, targets and number of rows."""
    batches: Callable[[], Iterator[Any]]
    """Goes through the table anew."""

    def inputs(self) -> Iterator["np.ndarray[Any, np.dtype[np.float32]]"]:
        """Rows of the inputs, some at a time."""
        return (self.columns.features(batch) for batch in self.batches())


def is_parquet(path: Path) -> bool:
    """Whether the file begins as Parquet files do."""
    with path.open("rb") as file:
        return file.read(4) == _PARQUET


def is_csv(path: Path) -> bool:
    """Whether the file begins as text whose first two lines have equally many, at least two, columns."""
    with path.open("rb") as file:
        head = file.read(SNIFFED_BYTES)
    try:
        lines = head.decode("utf-8-sig", errors="ignore" if len(head) == SNIFFED_BYTES else "strict").splitlines()
        first, second = list(csv.reader(lines[:2], delimiter=_delimiter(lines[0])))[:2]
    except (UnicodeDecodeError, ValueError, IndexError, csv.Error):
        return False
    return b"\0" not in head and lines[0][:1] not in "{[" and len(first) == len(second) > 1


def read_table(path: Path) -> Opened:
    """Read a whole table; raises `BadInput` or `HostileFile`."""
    table = scan(path, MAX_READ_BYTES)
    rows, inputs = 0, np.empty((table.columns.rows, table.columns.inputs), np.float32)
    for block in table.inputs():
        inputs[rows : rows + len(block)] = block
        rows += len(block)
    return Opened({"inputs": torch.from_numpy(inputs), "targets": table.columns.targets()}, table.columns.notes())


def scan(path: Path, most_bytes: int = MAX_TABLE_BYTES) -> Table:
    """Look at every value of a table; raises `BadInput` or `HostileFile`."""
    return _scan_parquet(path, most_bytes) if is_parquet(path) else _scan_csv(path, most_bytes)


def _scan_csv(path: Path, most_bytes: int) -> Table:
    import pyarrow as pa
    from pyarrow import csv as arrow

    with path.open("rb") as file:
        line = file.read(SNIFFED_BYTES).decode("utf-8-sig", errors="replace").splitlines()[0]
    delimiter = _delimiter(line)
    names = next(csv.reader([line], delimiter=delimiter))
    if all(_is_number(name) for name in names):
        message = "The first line holds numbers; it has to name the columns."
        raise bad(path, "No header", message, f"Add a line of names on top. {NAME_THE_TARGET}")
    target = target_of(path, names)
    for kind in (pa.int64(), pa.float64(), pa.string()):
        types = {name: pa.float32() for name in names} | {names[target]: kind}

        def batches(types: dict[str, Any] = types) -> Iterator[Any]:
            return iter(
                arrow.open_csv(
                    path,
                    arrow.ReadOptions(use_threads=False, block_size=4 * 1024**2),
                    arrow.ParseOptions(delimiter=delimiter),
                    arrow.ConvertOptions(column_types=types, strings_can_be_null=True, quoted_strings_can_be_null=True),
                )
            )

        try:
            return _looked_at(path, Columns(path, names, target, "csv"), batches, most_bytes)
        except pa.ArrowInvalid as error:
            complaint = str(error)
            if f"CSV column #{target}:" not in complaint:
                break
    message, remedy = _complaint(names, complaint)
    raise bad(path, "Not a table of numbers", message, remedy)


def _scan_parquet(path: Path, most_bytes: int) -> Table:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        schema = parquet.read_schema(path)
        target = target_of(path, list(schema.names))
        for at, column in enumerate(schema):
            check_type(path, column, is_target=at == target)
        text = [schema.names[target]] if pa.types.is_string(schema.field(target).type) else []

        def opened() -> Any:  # a long text that occurs often is read once; pages of a mapping would count as memory
            return parquet.ParquetFile(path, read_dictionary=text, buffer_size=_BUFFER_BYTES, pre_buffer=False)

        _check_packed(path, opened().metadata, len(schema.names), most_bytes)

        def batches() -> Iterator[Any]:
            rows: Iterator[Any] = opened().iter_batches(batch_size=_BATCH_ROWS, use_threads=False)
            return rows

        return _looked_at(path, Columns(path, list(schema.names), target, "parquet"), batches, most_bytes)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        message = f"The file cannot be read: {str(error).splitlines()[0][:200].rstrip('.')}."
        raise bad(path, "File damaged", message, "Write it again, and copy it whole.") from None


def _looked_at(path: Path, columns: Columns, batches: Callable[[], Iterator[Any]], most_bytes: int) -> Table:
    for batch in batches():
        columns.look_at(batch)
        _check_size(path, columns.rows, columns.inputs, most_bytes)
    if not columns.rows:
        raise bad(path, "Data set empty", "There is no row below the names.", "Give at least one sample.")
    return Table(columns, batches)


def _check_packed(path: Path, metadata: Any, columns: int, most_bytes: int) -> None:
    """Hold what a Parquet file says of its size against its bytes, before anything is unpacked."""
    groups = range(metadata.num_row_groups)
    unpacked_bytes = sum(metadata.row_group(at).total_byte_size for at in groups)
    kept_bytes = metadata.num_rows * columns * _FLOAT_BYTES
    if max(unpacked_bytes, kept_bytes) > zips.most_unpacked_bytes(path.stat().st_size):
        message = f"The table would unpack to {max(unpacked_bytes, kept_bytes):,} bytes, far more than data compresses."
        raise bad(path, "File refused", message, "Save it as a .safetensors or .npz data set, which is mapped.")
    _check_size(path, metadata.num_rows, columns - 1, most_bytes)


def _check_size(path: Path, rows: int, inputs: int, most_bytes: int) -> None:
    if rows * inputs * _FLOAT_BYTES > most_bytes:
        message = f"The table has more than {most_bytes // _FLOAT_BYTES:,} numbers, the most that is read."
        raise bad(path, "Table too large", message, "Save it as a .safetensors or .npz data set, which is mapped.")


def _complaint(names: list[str], error: str) -> tuple[str, str]:
    """A parser's complaint, with the column by its name, and the line as an editor counts it."""
    where = error.partition("CSV column #")[2]
    number, _, rest = where.partition(":")
    column = f"Column '{names[int(number)][:60]}': " if number.isdigit() and int(number) < len(names) else ""
    said = (rest or error).strip().splitlines()[0][:200].rstrip(".").replace("Row #", "line ", 1)
    remedy = f"Inputs are numbers with a decimal point; leave other columns out. {NAME_THE_TARGET}"
    return f"{column}{said}.", remedy


def _delimiter(line: str) -> str:
    return max(_DELIMITERS, key=line.count)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
