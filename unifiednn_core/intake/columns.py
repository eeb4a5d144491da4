"""The columns of a table: which one holds the targets, and what its rows mean as numbers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unifiednn_core.errors import BadInput
from unifiednn_core.views.data import MAX_CLASS_NAMES, MAX_COLUMNS, DataNotes

TARGET_NAMES = ("target", "label")
NAME_THE_TARGET = "Name the column of the targets 'target' or 'label'."
_LONGEST_NAME = 200


class Columns:
    """Columns of one table; batches of rows are shown to it, in order, and it keeps their targets."""

    def __init__(self, path: Path, names: Sequence[str], target: int, origin: str):
        self.rows = 0
        self.inputs = len(names) - 1
        """Columns that are inputs."""
        self._path, self._names, self._target, self._origin = path, names, target, origin
        self._classes: dict[str, int] = {}
        self._targets: list[np.ndarray[Any, Any]] = []

    def look_at(self, batch: Any) -> None:
        """Check the next rows, and keep their targets; raises `BadInput`."""
        for at, name in enumerate(self._names):
            if batch.column(at).null_count:
                missing = np.flatnonzero(batch.column(at).is_null().to_numpy(zero_copy_only=False))
                message = f"Column '{name[:60]}' has no value in {self._place(missing[0])} (and maybe in others)."
                remedy = "Fill in the value, or leave the row or the column out."
                raise bad(self._path, "Values missing", message, remedy)
        values = self.features(batch)
        unusual = np.argwhere(~np.isfinite(values))
        if len(unusual):
            row, column = unusual[0]
            name = self._names[column + (column >= self._target)]
            message = f"Column '{name[:60]}' has a value that is NaN, infinite or beyond float32 in {self._place(row)}."
            raise bad(self._path, "Not finite", message, "Correct the value, or leave the row or the column out.")
        self._targets.append(self._targets_of(batch.column(self._target)))
        self.rows += batch.num_rows

    def features(self, batch: Any) -> "np.ndarray[Any, np.dtype[np.float32]]":
        """Inputs of some rows."""
        columns = (column for at, column in enumerate(batch.columns) if at != self._target)
        with np.errstate(over="ignore"):  # becomes infinite, which is found
            return np.column_stack([_numbers(column) for column in columns])

    def targets(self) -> Tensor:
        """Targets of all rows that were looked at; classes with names are numbered as the alphabet orders them."""
        found = np.concatenate(self._targets)
        self._targets = [found]
        if self._classes:
            number = np.empty(len(self._classes), np.int64)
            number[[self._classes[name] for name in sorted(self._classes)]] = np.arange(len(self._classes))
            found = number[found]
        return torch.from_numpy(found)

    def notes(self) -> DataNotes:
        """What is known of the table beside its numbers."""
        names = [name[:_LONGEST_NAME] for name in self._names]
        return DataNotes(
            origin=self._origin,
            class_names=tuple(sorted(self._classes)),
            columns=tuple(name for at, name in enumerate(names) if at != self._target),
            target=names[self._target],
        )

    def _place(self, row: int) -> str:
        """Row of the next batch, as the program that shows the table counts it."""
        return f"line {self.rows + row + 2}" if self._origin == "csv" else f"row {self.rows + row + 1}"

    def _targets_of(self, column: Any) -> "np.ndarray[Any, Any]":
        """Class numbers, real numbers, or the places of names in the classes, which grow."""
        import pyarrow as pa

        kind = column.type
        if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
            return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.int64)
        if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
            return _numbers(column)
        encoded = column if pa.types.is_dictionary(kind) else column.dictionary_encode()
        if encoded.dictionary.nbytes > 2 * _LONGEST_NAME * MAX_CLASS_NAMES:
            raise self._no_names("holds long texts, no names of classes")
        places = []
        for name in encoded.dictionary.to_pylist():
            if len(name) > _LONGEST_NAME:
                raise self._no_names("holds long texts, no names of classes")
            places.append(self._classes.setdefault(name, len(self._classes)))
        if len(self._classes) > MAX_CLASS_NAMES:
            raise self._no_names(f"holds more than {MAX_CLASS_NAMES:,} different texts")
        return np.array(places, np.int64)[np.asarray(encoded.indices.to_numpy(zero_copy_only=False), dtype=np.int64)]

    def _no_names(self, what: str) -> BadInput:
        return bad(self._path, "Targets", f"The column of the targets {what}.", NAME_THE_TARGET)


def target_of(path: Path, names: Sequence[str]) -> int:
    """Place of the column of the targets: the one named so, else the last; raises `BadInput`."""
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise bad(path, "Columns", f"Two columns are named '{twice[:60]}'.", "Give each column a name of its own.")
    if not 2 <= len(names) <= MAX_COLUMNS:
        message = f"The table has {len(names):,} column{'s' * (len(names) != 1)}; 2 to {MAX_COLUMNS:,} are read."
        raise bad(path, "Columns", message, "Give one column of targets and at least one of inputs.")
    lower = [name.strip().lower() for name in names]
    return next((lower.index(name) for name in TARGET_NAMES if name in lower), len(names) - 1)


def check_type(path: Path, column: Any, *, is_target: bool) -> None:
    """Refuse a column of a Parquet file that holds no numbers, or no names of classes; raises `BadInput`."""
    import pyarrow as pa

    kind, is_ = column.type, pa.types
    value = kind.value_type if is_.is_dictionary(kind) else kind
    text = is_.is_string(value) or is_.is_large_string(value)
    number = is_.is_integer(kind) or is_.is_floating(kind) or is_.is_boolean(kind) or is_.is_decimal(kind)
    if not number and not (is_target and text):
        wanted = "numbers or names of classes" if is_target else "numbers"
        message = f"Column '{column.name[:60]}' holds {str(kind)[:60]}; {wanted} are needed."
        raise bad(path, "Type of data", message, f"Leave it out, or turn it into numbers. {NAME_THE_TARGET}")


def bad(path: Path, title: str, message: str, remedy: str) -> BadInput:
    """One error finding on a table."""
    return BadInput.of(title, field=path.name, message=message, remedy=remedy)


def _numbers(column: Any) -> "np.ndarray[Any, np.dtype[np.float32]]":
    import pyarrow as pa

    column = column.cast(pa.float64()) if pa.types.is_decimal(column.type) else column
    values: np.ndarray[Any, np.dtype[np.float32]] = column.to_numpy(zero_copy_only=False).astype(np.float32)
    return values
