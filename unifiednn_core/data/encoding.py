"""Turns blocks of a table into entries of a data set, by a fitted plan."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from unifiednn_core.data import cells, pictures
from unifiednn_core.data.fitting import Tokenizers, images_of, texts_of
from unifiednn_core.data.tables import TableSource
from unifiednn_core.data.values import DataNotes
from unifiednn_core.formats.predict import pixels_of
from unifiednn_core.spec.columns import (
    MAX_NAME,
    CategoryColumn,
    ColumnPlan,
    ImageColumn,
    ListColumn,
    NumberColumn,
    TextColumn,
    UsedColumn,
)

MAX_REMARKS = 20
Layout = Mapping[str, tuple[type[np.generic], tuple[int, ...]]]
_Encode = Callable[[Any, int], cells.Array]
_FILL = "Fill in the value, or leave the row or the column out."


class RowEncoder:
    """Columns of one table as entries; `layout` has the type and the shape of one sample of each."""

    def __init__(self, plan: ColumnPlan, source: TableSource, tokenizers: Tokenizers):
        self._source, self._plan = source, plan
        by_name = {column.name: column for column in plan.used()}
        self._target = by_name.pop(plan.target) if plan.target is not None else None
        self._inputs: dict[str, list[UsedColumn]] = {}
        for column in by_name.values():
            self._inputs.setdefault(column.input, []).append(column)
        self._tokenizers = {c.name: tokenizers(c) for c in plan.used() if c.kind == "text"}
        self.layout: Layout = dict(self._layout())

    def encode(self, block: Any, row: int) -> dict[str, cells.Array]:
        """Entries of a block whose first row has this number; raises `BadInput`."""
        found: dict[str, cells.Array] = {}
        for name, columns in self._inputs.items():
            parts = [part for column in columns for part in self._parts(column, block, row)]
            first = columns[0]
            if not isinstance(first, NumberColumn | CategoryColumn):
                found |= dict(zip(_entries(first), parts, strict=False))
            else:
                entry = _entry(name)
                found[entry] = np.column_stack(parts).astype(self.layout[entry][0], copy=False)
        if self._target is not None:
            values = self._parts(self._target, block, row)[0]
            found["targets"] = values.reshape(len(values), *self.layout["targets"][1])
        return found

    def stream(self) -> Iterator[cells.Array]:
        """Tokens of a stream, some at a time."""
        column = next(column for column in self._plan.used() if column.kind == "text")
        tokenizer = self._tokenizers[column.name]
        for _, block in self._source.blocks():
            different, indices = texts_of(self._source, column.name, self._cells(column, block))
            ids = [np.asarray(one, np.int64) for one in tokenizer.encode_stream(different)]
            yield np.concatenate([np.empty(0, np.int64), *(ids[at] for at in indices if at >= 0)])

    def notes(self) -> DataNotes:
        """Describe the data set: origin, classes, columns and the plan."""
        target = self._target
        classes = target.values or () if target is not None and target.kind == "category" else ()
        padded = [column for column in self._plan.used() if column is not target and column.kind in ("text", "list")]
        pads = {_entries(column)[0].removeprefix("inputs."): column.pad for column in padded}
        return DataNotes(
            origin=self._source.origin,
            class_names=classes,
            columns=tuple(
                name for columns in self._inputs.values() for column in columns for name in _features(column)
            ),
            target="" if target is None else target.name[:MAX_NAME],
            pad={name: pad for name, pad in pads.items() if pad is not None},
            remarks=tuple(self._remarks())[:MAX_REMARKS],
            plan=self._plan,
        )

    def _remarks(self) -> Iterator[str]:
        for column in self._plan.used():
            name = f"column '{column.name[:60]}'"
            if column.kind == "number" and column.fill is not None:
                how = "0" if column.missing in ("zero", "flag") else f"the {column.missing}, {column.fill:.6g}"
                yield f"Missing values of {name} become {how}."
            if column.kind == "text" and column.longest is not None and column.longest >= column.max_length:
                yield f"Texts of {name} are cut after {column.length:,} tokens."

    def _layout(self) -> Iterator[tuple[str, tuple[type[np.generic], tuple[int, ...]]]]:
        for name, columns in self._inputs.items():
            first = columns[0]
            if first.kind == "image":
                yield _entry(name), (np.uint8, first.shape or (1, 1, 1))
            elif first.kind in ("text", "list"):
                yield from ((entry, (_type(first), (first.length or 1,))) for entry in _entries(first)[:1])
                yield from ((entry, (np.int64, (first.length or 1,))) for entry in _entries(first)[1:])
            else:
                whole = all(_type(column) is np.int64 for column in columns)
                yield _entry(name), (np.int64 if whole else np.float32, (sum(map(_width, columns)),))
        if self._target is not None:
            target = self._target
            single = target.kind == "number" or (target.kind == "category" and not target.one_hot)
            yield "targets", (_type(target), () if single else (_width(target),))

    def _cells(self, column: UsedColumn, block: Any) -> Any:
        return block.column(self._source.names.index(column.name))

    def _parts(self, column: UsedColumn, block: Any, row: int) -> list[cells.Array]:
        """Arrays [rows, features] of one column; for a text or list with a mask the mask follows."""
        here = self._cells(column, block)
        if column.kind == "number":
            return self._numbers(column, here, row)
        if column.kind == "category":
            return [self._categories(column, here, row)]
        if column.kind == "image":
            return [self._images(column, here, row)]
        ragged = self._tokens(column, here) if column.kind == "text" else self._lists(column, here, row)
        return list(_padded(*ragged, column.length or 1, column.pad or 0, _type(column)))

    def _numbers(self, column: NumberColumn, here: Any, row: int) -> list[cells.Array]:
        name = f"Column '{column.name[:60]}'"
        found = cells.numbers(here)
        if found is None:
            raise self._source.bad("Not a number", f"{name}: {self._first_text(here, row)}.", _SAY)
        missing = np.isnan(found)
        if missing.any() and column.fill is None:
            place = self._source.place(row + int(np.flatnonzero(missing)[0]))
            message = f"{name} has no value in {place} (and maybe in others)."
            remedy = _FILL
            if column.name != self._plan.target:
                remedy = f'{_FILL} A plan can fill it in, too: "missing": "mean".'
            raise self._source.bad("Values missing", message, remedy)
        if column.whole:
            whole = cells.whole_numbers(here)
            if whole is None:
                message = f"{name} has a number that is not whole, or beyond int64, after {self._source.place(row)}."
                raise self._source.bad("Not whole", message, "Correct the value; the column was declared as whole.")
            return [whole]
        with np.errstate(over="ignore"):  # becomes infinite, which is found
            values = np.where(missing, column.fill or 0.0, found).astype(np.float32)
        unusual = np.flatnonzero(~np.isfinite(values))
        if len(unusual):
            place = self._source.place(row + int(unusual[0]))
            message = f"{name} has a value that is NaN, infinite or beyond float32 in {place}."
            raise self._source.bad("Not finite", message, "Correct the value, or leave the row or the column out.")
        return [values, missing.astype(np.float32)] if column.missing == "flag" else [values]

    def _first_text(self, here: Any, row: int) -> str:
        """Say which value is not a number: `line 3: 'x' is not a number`."""
        different, indices = texts_of(self._source, "", here) if cells.texts(here) is not None else ([], None)
        for at, text in enumerate(different):
            if not cells.is_number(text):
                place = self._source.place(row + int(np.flatnonzero(indices == at)[:1].sum()))
                return f"{place}: '{text[:40]}' is not a number"
        return f"{str(here.type)[:60]} is not a number"

    def _categories(self, column: CategoryColumn, here: Any, row: int) -> cells.Array:
        different, indices = texts_of(self._source, column.name, here)
        known = {value: number for number, value in enumerate(column.values or ())}
        missing = known.get("", -1) if column.missing == "own" else -1
        found = np.array([*(known.get(text, -1) for text in different), missing])[indices]
        if (found < 0).any():
            at = int(np.flatnonzero(found < 0)[0])
            place, name = self._source.place(row + at), f"Column '{column.name[:60]}'"
            if indices[at] < 0:
                message = f"{name} has no value in {place} (and maybe in others)."
                raise self._source.bad("Values missing", message, _FILL)
            message = (
                f"{name} has '{different[indices[at]][:40]}' in {place}, which the {len(known):,} known values lack."
            )
            remedy = "Leave the row out, or import all rows as one file and split it then."
            raise self._source.bad("Unknown category", message, remedy)
        if not column.one_hot:
            return found.astype(np.int64)
        return np.asarray(found[:, None] == np.arange(len(known)), np.float32)

    def _tokens(self, column: TextColumn, here: Any) -> tuple[cells.Array, cells.Array]:
        different, indices = texts_of(self._source, column.name, here)
        ids = [*self._tokenizers[column.name].encode(different, column.length), []]
        chosen = [ids[at] for at in indices]  # -1 is the empty one
        flat = np.fromiter((one for each in chosen for one in each), np.int64)
        return np.fromiter(map(len, chosen), np.int64, len(chosen)), flat

    def _images(self, column: ImageColumn, here: Any, row: int) -> cells.Array:
        shape = column.shape or (1, 1, 1)
        found = np.empty((len(here), *shape), np.uint8)
        for at, (place, content) in enumerate(images_of(self._source, column.name, here, row)):
            image = pictures.header(self._source.path, place, content)
            if column.size is None and (image.height, image.width) != shape[1:]:
                message = f"The image in {place} is {image.height}x{image.width}, not {shape[1]}x{shape[2]}."
                raise self._source.bad("Sizes differ", message, pictures.CHOOSE_SIZE)
            with pictures.undamaged(self._source.path, place):
                found[at] = pixels_of(image, shape[0], column.size)
        return found

    def _lists(self, column: ListColumn, here: Any, row: int) -> tuple[cells.Array, cells.Array]:
        name = f"Column '{column.name[:60]}'"
        found = cells.lists(here)
        if found is None and here.null_count < len(here):
            message = f"{name} holds {str(here.type)[:60]} after {self._source.place(row)}, not lists of numbers."
            raise self._source.bad("Type of data", message, "Correct its kind in the plan, or leave it out.")
        lengths, values = found or (np.zeros(len(here), np.int64), np.empty(0, np.int64))
        with np.errstate(over="ignore"):
            bad = ~np.isfinite(values.astype(np.float32))
        if bad.any() or (column.whole and values.dtype != np.int64):
            at = int(np.searchsorted(np.cumsum(lengths), np.flatnonzero(bad)[0], "right")) if bad.any() else 0
            wanted = "whole and finite" if column.whole else "finite"
            message = f"{name} has a number that is not {wanted} in or after {self._source.place(row + at)}."
            raise self._source.bad("Not finite", message, "Correct the list, or leave the row or the column out.")
        return lengths, values


_SAY = "Correct the value, or give the column another kind in the plan."


def _padded(
    lengths: cells.Array, flat: cells.Array, length: int, pad: int, kind: type[np.generic]
) -> tuple[cells.Array, cells.Array]:
    """Lay sequences side by side, cut and padded to one length; and 1 where there is a value."""
    places = np.arange(length)
    kept = places < lengths[:, None]
    starts = np.cumsum(lengths) - lengths
    values = np.full((len(lengths), length), pad, kind)
    values[kept] = flat[(starts[:, None] + places)[kept]]
    return values, kept.astype(np.int64)


def _type(column: UsedColumn) -> type[np.generic]:
    if column.kind == "text":
        return np.int64
    if column.kind == "image":
        return np.uint8
    whole = not column.one_hot if column.kind == "category" else bool(column.whole)
    return np.int64 if whole else np.float32


def _width(column: UsedColumn) -> int:
    if column.kind in ("text", "list"):
        return column.length or 1
    return len(_features(column))


def _features(column: UsedColumn) -> list[str]:
    """Names of the numbers that a column becomes."""
    names = [column.name]
    if column.kind == "category" and column.one_hot:
        names = [f"{column.name} = {value}" for value in column.values or ()]
    elif column.kind == "number" and column.missing == "flag":
        names = [column.name, f"{column.name} missing"]
    return [name[:MAX_NAME] for name in names]


def _entries(column: TextColumn | ListColumn | ImageColumn) -> list[str]:
    """Entry of a text, list or image, and of its mask."""
    if column.kind == "image" or not column.mask:
        return [_entry(column.input)]
    named = column.input != "inputs"
    names = [column.input, f"{column.input}_mask"] if named else ["input_ids", "attention_mask"]
    return [f"inputs.{name}" for name in names]


def _entry(name: str) -> str:
    return name if name == "inputs" else f"inputs.{name}"
