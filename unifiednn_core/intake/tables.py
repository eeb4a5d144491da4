"""Tables, CSV and Parquet: numeric columns become float32 inputs [samples, columns], one column the targets."""

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from unifiednn_core.data_views import MAX_CLASS_NAMES, MAX_COLUMNS, DataNotes
from unifiednn_core.errors import BadInput
from unifiednn_core.intake.opened import Opened

TARGET_NAMES = ("target", "label")
MAX_TABLE_BYTES = 1024**3
"""Of the numbers, once they are read."""
SNIFFED_BYTES = 2**20
_DELIMITERS = ",;\t"
_FLOAT_BYTES = 4
_PARQUET = b"PAR1"
_NAME_THE_TARGET = "Name the column of the targets 'target' or 'label'."


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


def read_csv(path: Path) -> Opened:
    """Read a table of text; raises `BadInput`."""
    import pyarrow as pa
    from pyarrow import csv as arrow

    with path.open("rb") as file:
        line = file.readline(SNIFFED_BYTES).decode("utf-8-sig", errors="replace").rstrip("\r\n")
    delimiter = _delimiter(line)
    names = next(csv.reader([line], delimiter=delimiter))
    if all(_is_number(name) for name in names):
        message = "The first line holds numbers; it has to name the columns."
        raise _bad(path, "No header", message, f"Add a line of names on top. {_NAME_THE_TARGET}")
    target = _target(path, names)
    room = path.stat().st_size
    _check_size(path, room // max(1, 2 * len(names)), len(names))  # a number and a comma have two bytes at least
    for kind in (pa.int64(), pa.float64(), pa.string()):
        types = {name: pa.float32() for name in names} | {names[target]: kind}
        try:
            reader = arrow.open_csv(
                path,
                arrow.ReadOptions(use_threads=False, block_size=4 * 1024**2),
                arrow.ParseOptions(delimiter=delimiter),
                arrow.ConvertOptions(column_types=types, strings_can_be_null=True, quoted_strings_can_be_null=True),
            )
            return _opened(path, reader, names, target, "csv")
        except pa.ArrowInvalid as error:
            complaint = str(error)
            if f"CSV column #{target}:" not in complaint:
                break
    raise _not_numbers(path, names, complaint)


def read_parquet(path: Path) -> Opened:
    """Read a Parquet table; raises `BadInput`."""
    import pyarrow as pa
    from pyarrow import parquet

    try:
        file = parquet.ParquetFile(path, memory_map=True)
        names = list(file.schema_arrow.names)
        target = _target(path, names)
        _check_size(path, file.metadata.num_rows, len(names))
        for at, column in enumerate(file.schema_arrow):
            _check_type(path, column, is_target=at == target)
        return _opened(path, file.iter_batches(batch_size=2**14, use_threads=False), names, target, "parquet")
    except (pa.ArrowException, OSError) as error:
        message = f"The file cannot be read: {str(error).splitlines()[0][:200]}."
        raise _bad(path, "File damaged", message, "Write it again, and copy it whole.") from None


def _opened(path: Path, batches: Iterator[Any], names: Sequence[str], target: int, origin: str) -> Opened:
    """Data set of a table that is read batch by batch."""
    classes: dict[str, int] = {}
    inputs, targets, rows = [], [], 0
    for batch in batches:
        for at, name in enumerate(names):
            if batch.column(at).null_count:
                row = rows + int(np.flatnonzero(batch.column(at).is_null().to_numpy(zero_copy_only=False))[0]) + 1
                message = f"Column '{name[:60]}' has no value in row {row} (and maybe in others)."
                raise _bad(path, "Values missing", message, "Fill in the value, or leave the row or the column out.")
        features = [column for at, column in enumerate(batch.columns) if at != target]
        inputs.append(np.column_stack([_numbers(column) for column in features]))
        targets.append(_targets(path, batch.column(target), classes))
        rows += batch.num_rows
    if not rows:
        raise _bad(path, "Data set empty", "There is no row below the names.", "Give at least one sample.")
    labels = np.concatenate(targets)
    class_names = sorted(classes)
    if class_names:  # numbered in the order of the alphabet, as everybody does
        number = np.empty(len(classes), np.int64)
        number[[classes[name] for name in class_names]] = np.arange(len(classes))
        labels = number[labels]
    columns = tuple(name[:200] for at, name in enumerate(names) if at != target)
    notes = DataNotes(origin=origin, class_names=tuple(class_names), columns=columns, target=names[target][:200])
    return Opened({"inputs": torch.from_numpy(np.concatenate(inputs)), "targets": torch.from_numpy(labels)}, notes)


def _numbers(column: Any) -> "np.ndarray[Any, np.dtype[np.float32]]":
    import pyarrow as pa

    column = column.cast(pa.float64()) if pa.types.is_decimal(column.type) else column
    values: np.ndarray[Any, np.dtype[np.float32]] = column.to_numpy(zero_copy_only=False).astype(np.float32)
    return values


def _targets(path: Path, column: Any, classes: dict[str, int]) -> "np.ndarray[Any, Any]":
    """Class numbers, real numbers, or the places of names in `classes`, which grows."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.int64)
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return _numbers(column)
    encoded = column if pa.types.is_dictionary(kind) else column.dictionary_encode()
    places = []
    for name in encoded.dictionary.to_pylist():
        if len(name) > 200:
            message = "The column of the targets holds long texts, no names of classes."
            raise _bad(path, "Targets", message, _NAME_THE_TARGET)
        places.append(classes.setdefault(name, len(classes)))
    if len(classes) > MAX_CLASS_NAMES:
        message = f"The column of the targets holds more than {MAX_CLASS_NAMES:,} different texts."
        raise _bad(path, "Targets", message, _NAME_THE_TARGET)
    return np.array(places, np.int64)[np.asarray(encoded.indices.to_numpy(zero_copy_only=False), dtype=np.int64)]


def _target(path: Path, names: Sequence[str]) -> int:
    """Place of the column of the targets: the one named so, else the last."""
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        message = f"Two columns are named '{twice[:60]}'."
        raise _bad(path, "Columns", message, "Give each column a name of its own.")
    if not 2 <= len(names) <= MAX_COLUMNS:
        message = f"The table has {len(names):,} columns; 2 to {MAX_COLUMNS:,} are read."
        raise _bad(path, "Columns", message, "Give one column of targets and at least one of inputs.")
    lower = [name.strip().lower() for name in names]
    return next((lower.index(name) for name in TARGET_NAMES if name in lower), len(names) - 1)


def _check_size(path: Path, rows: int, columns: int) -> None:
    if rows * columns * _FLOAT_BYTES > MAX_TABLE_BYTES:
        message = f"The table has about {rows * columns:,} numbers; {MAX_TABLE_BYTES // _FLOAT_BYTES:,} are read."
        raise _bad(path, "Table too large", message, "Save it as a .safetensors or .npz data set, which is mapped.")


def _check_type(path: Path, column: Any, *, is_target: bool) -> None:
    import pyarrow as pa

    kind, is_ = column.type, pa.types
    value = kind.value_type if is_.is_dictionary(kind) else kind
    text = is_.is_string(value) or is_.is_large_string(value)
    number = is_.is_integer(kind) or is_.is_floating(kind) or is_.is_boolean(kind) or is_.is_decimal(kind)
    if not number and not (is_target and text):
        wanted = "numbers or names of classes" if is_target else "numbers"
        message = f"Column '{column.name[:60]}' holds {str(kind)[:60]}; {wanted} are needed."
        raise _bad(path, "Type of data", message, f"Leave it out, or turn it into numbers. {_NAME_THE_TARGET}")


def _not_numbers(path: Path, names: Sequence[str], error: str) -> BadInput:
    """Finding for a parser's complaint, with the column by its name."""
    where = error.partition("CSV column #")[2]
    number, _, rest = where.partition(":")
    column = f"Column '{names[int(number)][:60]}': " if number.isdigit() and int(number) < len(names) else ""
    message = f"{column}{(rest or error).strip().splitlines()[0][:200]}."
    remedy = f"Inputs are numbers with a decimal point; leave other columns out. {_NAME_THE_TARGET}"
    return _bad(path, "Not a table of numbers", message, remedy)


def _delimiter(line: str) -> str:
    return max(_DELIMITERS, key=line.count)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _bad(path: Path, title: str, message: str, remedy: str) -> BadInput:
    return BadInput.of(title, field=path.name, message=message, remedy=remedy)
