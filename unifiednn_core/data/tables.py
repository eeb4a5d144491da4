"""Reads tables, CSV and Parquet: numeric columns as float32 inputs [samples, columns], one column as targets.

A table is read twice: once to count its rows and check every value, once to copy the numbers.
"""

import csv
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unifiednn_core.data.opened import Opened
from unifiednn_core.data.values import MAX_CLASS_NAMES, MAX_COLUMNS, DataNotes
from unifiednn_core.formats import zips
from unifiednn_core.formats.tensor_files import bad_file

MAX_TABLE_BYTES = 16 * 1024**3  # of the converted numbers
MAX_READ_BYTES = 1024**3  # of the numbers, if the table is not converted first
SNIFFED_BYTES = 2**20
_BATCH_ROWS = 2**14
_BUFFER_BYTES = 2**18
_DELIMITERS = ",;\t"
_FLOAT_BYTES = 4
_PARQUET = b"PAR1"

TARGET_NAMES = ("target", "label")
NAME_THE_TARGET = "Name the column of the targets 'target' or 'label'."
_LONGEST_NAME = 200
_Numbers = np.ndarray[Any, np.dtype[np.float32]]
_Batches = Callable[[], Iterator[Any]]


class Table:
    """One table. Making it reads all rows, checks them and keeps their targets; raises `BadInput`."""

    def __init__(self, path: Path, names: Sequence[str], target: int, origin: str, batches: _Batches, most_bytes: int):
        """`target` is the number of the target column; `batches` reads the file from its start."""
        self.rows = 0
        self.inputs = len(names) - 1  # number of input columns
        self._path, self._names, self._target, self._origin, self._batches = path, names, target, origin, batches
        self._classes: dict[str, int] = {}
        self._targets: list[np.ndarray[Any, Any]] = []
        for batch in batches():
            self._check(batch)
            _check_size(path, self.rows, self.inputs, most_bytes)
        if not self.rows:
            message = "The table has no rows below the names."
            raise bad_file(path, "Data set empty", message, "Give at least one sample.")

    def _check(self, batch: Any) -> None:
        for at, name in enumerate(self._names):
            if batch.column(at).null_count:
                missing = np.flatnonzero(batch.column(at).is_null().to_numpy(zero_copy_only=False))
                message = f"Column '{name[:60]}' has no value in {self._place(missing[0])} (and maybe in others)."
                remedy = "Fill in the value, or leave the row or the column out."
                raise bad_file(self._path, "Values missing", message, remedy)
        values = self._features(batch)
        unusual = np.argwhere(~np.isfinite(values))
        if len(unusual):
            row, column = unusual[0]
            name = self._names[column + (column >= self._target)]
            message = f"Column '{name[:60]}' has a value that is NaN, infinite or beyond float32 in {self._place(row)}."
            raise bad_file(self._path, "Not finite", message, "Correct the value, or leave the row or the column out.")
        self._targets.append(self._targets_of(batch.column(self._target)))
        self.rows += batch.num_rows

    def blocks(self) -> Iterator[_Numbers]:
        """Read the inputs again, some rows at a time: float32 [rows, columns]."""
        return map(self._features, self._batches())

    def _features(self, batch: Any) -> _Numbers:
        columns = (column for at, column in enumerate(batch.columns) if at != self._target)
        with np.errstate(over="ignore"):  # becomes infinite, which is found
            return np.column_stack([_numbers(column) for column in columns])

    def targets(self) -> Tensor:
        """Return the targets of all rows; named classes are numbered in alphabetical order."""
        found = np.concatenate(self._targets)
        self._targets = [found]
        if self._classes:
            number = np.empty(len(self._classes), np.int64)
            number[[self._classes[name] for name in sorted(self._classes)]] = np.arange(len(self._classes))
            found = number[found]
        return torch.from_numpy(found)

    def notes(self) -> DataNotes:
        """Describe the table: origin, classes and columns."""
        names = [name[:_LONGEST_NAME] for name in self._names]
        return DataNotes(
            origin=self._origin,
            class_names=tuple(sorted(self._classes)),
            columns=tuple(name for at, name in enumerate(names) if at != self._target),
            target=names[self._target],
        )

    def _place(self, row: int) -> str:
        """Name a row of the next batch as an editor counts it."""
        return f"line {self.rows + row + 2}" if self._origin == "csv" else f"row {self.rows + row + 1}"

    def _targets_of(self, column: Any) -> "np.ndarray[Any, Any]":
        """Return class numbers, real numbers, or numbers of class names in order of appearance."""
        import pyarrow as pa

        kind = column.type
        if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
            return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.int64)
        if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
            return _numbers(column)
        encoded = column if pa.types.is_dictionary(kind) else column.dictionary_encode()
        names, problem = encoded.dictionary, ""
        limit = 2 * _LONGEST_NAME * MAX_CLASS_NAMES
        if names.nbytes > limit or any(len(name) > _LONGEST_NAME for name in names.to_pylist()):
            problem = "long texts instead of class names"
        elif len(self._classes.keys() | set(names.to_pylist())) > MAX_CLASS_NAMES:
            problem = f"more than {MAX_CLASS_NAMES:,} different texts"
        if problem:
            raise bad_file(self._path, "Targets", f"The column of the targets holds {problem}.", NAME_THE_TARGET)
        numbers = [self._classes.setdefault(name, len(self._classes)) for name in names.to_pylist()]
        return np.array(numbers, np.int64)[np.asarray(encoded.indices.to_numpy(zero_copy_only=False), dtype=np.int64)]


def is_parquet(path: Path) -> bool:
    """Whether the file begins as Parquet files do."""
    with path.open("rb") as file:
        return file.read(4) == _PARQUET


def is_csv(path: Path) -> bool:
    """Whether the file begins with text that has two lines of equally many, at least two, columns."""
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
    rows, inputs = 0, np.empty((table.rows, table.inputs), np.float32)
    for block in table.blocks():
        inputs[rows : rows + len(block)] = block
        rows += len(block)
    return Opened({"inputs": torch.from_numpy(inputs), "targets": table.targets()}, table.notes())


def scan(path: Path, most_bytes: int = MAX_TABLE_BYTES) -> Table:
    """Check every value of a table; raises `BadInput` or `HostileFile`."""
    return _scan_parquet(path, most_bytes) if is_parquet(path) else _scan_csv(path, most_bytes)


def _scan_csv(path: Path, most_bytes: int) -> Table:
    import pyarrow as pa
    from pyarrow import csv as arrow

    with path.open("rb") as file:
        line = file.read(SNIFFED_BYTES).decode("utf-8-sig", errors="replace").splitlines()[0]
    delimiter = _delimiter(line)
    names = next(csv.reader([line], delimiter=delimiter))
    if all(_is_number(name) for name in names):
        message = "The first line holds numbers instead of column names."
        raise bad_file(path, "No header", message, f"Add a line of names on top. {NAME_THE_TARGET}")
    target = _target_of(path, names)
    for kind in (pa.int64(), pa.float64(), pa.string()):
        types = {name: pa.float32() for name in names} | {names[target]: kind}

        def batches(types: dict[str, Any] = types) -> Iterator[Any]:
            read = arrow.ReadOptions(use_threads=False, block_size=4 * 1024**2)
            kept = arrow.ConvertOptions(column_types=types, strings_can_be_null=True, quoted_strings_can_be_null=True)
            return iter(arrow.open_csv(path, read, arrow.ParseOptions(delimiter=delimiter), kept))

        try:
            return Table(path, names, target, "csv", batches, most_bytes)
        except pa.ArrowInvalid as error:
            complaint = str(error)
            if f"CSV column #{target}:" not in complaint:
                break
    message, remedy = _complaint(names, complaint)
    raise bad_file(path, "Not a table of numbers", message, remedy)


def _scan_parquet(path: Path, most_bytes: int) -> Table:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        schema = parquet.read_schema(path)
        target = _target_of(path, list(schema.names))
        for at, column in enumerate(schema):
            _check_type(path, column, is_target=at == target)
        text = [schema.names[target]] if pa.types.is_string(schema.field(target).type) else []

        def opened() -> Any:  # reads a repeated long text once; pages of a mapping would count as memory
            return parquet.ParquetFile(path, read_dictionary=text, buffer_size=_BUFFER_BYTES, pre_buffer=False)

        _check_packed(path, opened().metadata, len(schema.names), most_bytes)

        def batches() -> Iterator[Any]:
            return iter(opened().iter_batches(batch_size=_BATCH_ROWS, use_threads=False))

        return Table(path, list(schema.names), target, "parquet", batches, most_bytes)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        message = f"The file cannot be read: {str(error).splitlines()[0][:200].rstrip('.')}."
        raise bad_file(path, "File damaged", message, "Write it again, and copy it whole.") from None


def _check_packed(path: Path, metadata: Any, columns: int, most_bytes: int) -> None:
    """Compare the sizes in a Parquet file with its bytes before anything is unpacked."""
    groups = range(metadata.num_row_groups)
    unpacked_bytes = sum(metadata.row_group(at).total_byte_size for at in groups)
    kept_bytes = metadata.num_rows * columns * _FLOAT_BYTES
    if max(unpacked_bytes, kept_bytes) > zips.most_unpacked_bytes(path.stat().st_size):
        message = f"The table would unpack to {max(unpacked_bytes, kept_bytes):,} bytes, far more than data compresses."
        raise bad_file(path, "File refused", message, "Save it as a .safetensors or .npz data set, which is mapped.")
    _check_size(path, metadata.num_rows, columns - 1, most_bytes)


def _check_size(path: Path, rows: int, inputs: int, most_bytes: int) -> None:
    if rows * inputs * _FLOAT_BYTES > most_bytes:
        message = f"The table has more than {most_bytes // _FLOAT_BYTES:,} numbers, which is the limit."
        raise bad_file(path, "Table too large", message, "Save it as a .safetensors or .npz data set, which is mapped.")


def _complaint(names: list[str], error: str) -> tuple[str, str]:
    """Rewrite an error of the parser with the name of the column and the line as an editor counts it."""
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


def _target_of(path: Path, names: Sequence[str]) -> int:
    """Find the column of the targets by its name, else the last one; raises `BadInput`."""
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise bad_file(path, "Columns", f"Two columns are named '{twice[:60]}'.", "Give each column its own name.")
    if not 2 <= len(names) <= MAX_COLUMNS:
        message = f"The table has {len(names):,} column{'s' * (len(names) != 1)}; 2 to {MAX_COLUMNS:,} are read."
        raise bad_file(path, "Columns", message, "Give one column of targets and at least one of inputs.")
    lower = [name.strip().lower() for name in names]
    return next((lower.index(name) for name in TARGET_NAMES if name in lower), len(names) - 1)


def _check_type(path: Path, column: Any, *, is_target: bool) -> None:
    """Refuse a column of a Parquet file without numbers or class names; raises `BadInput`."""
    import pyarrow as pa

    kind, is_ = column.type, pa.types
    value = kind.value_type if is_.is_dictionary(kind) else kind
    text = is_.is_string(value) or is_.is_large_string(value)
    number = is_.is_integer(kind) or is_.is_floating(kind) or is_.is_boolean(kind) or is_.is_decimal(kind)
    if not number and not (is_target and text):
        wanted = "numbers or class names" if is_target else "numbers"
        message = f"Column '{column.name[:60]}' holds {str(kind)[:60]}; {wanted} are needed."
        raise bad_file(path, "Type of data", message, f"Leave it out, or turn it into numbers. {NAME_THE_TARGET}")


def _numbers(column: Any) -> _Numbers:
    import pyarrow as pa

    column = column.cast(pa.float64()) if pa.types.is_decimal(column.type) else column
    values: _Numbers = column.to_numpy(zero_copy_only=False).astype(np.float32)
    return values
