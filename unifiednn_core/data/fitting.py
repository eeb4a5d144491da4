"""Fits a plan to a table: means, categories, vocabularies and lengths; and turns blocks into entries by it.

Fitting reads the table once, block by block.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from unifiednn_core.data import cells, pictures
from unifiednn_core.data.proposal import unknown_column
from unifiednn_core.data.tables import TableSource
from unifiednn_core.data.tokenizer_file import TokenizerFile, WordCount, WordTokenizer
from unifiednn_core.data.values import DataNotes
from unifiednn_core.formats.predict import GREY, pixels_of
from unifiednn_core.spec.columns import (
    MAX_LENGTH,
    MAX_NAME,
    MAX_VALUES,
    WORDS,
    CategoryColumn,
    ColumnPlan,
    ImageColumn,
    ListColumn,
    NumberColumn,
    TextColumn,
    UsedColumn,
)

Tokenizer = WordTokenizer | TokenizerFile
Tokenizers = Callable[[TextColumn], Tokenizer]
MAX_MEDIAN_ROWS = 2**26
SEQUENCE = 128  # tokens of one sample of a stream


def fitted(plan: ColumnPlan, source: TableSource, tokenizers: Tokenizers) -> tuple[ColumnPlan, int, int]:
    """Return the fitted plan, the number of rows, and of the tokens of a stream. Raises `BadInput`.

    What is fitted already is kept, so test data become numbers as the training data did.
    """
    for column in plan.used():
        if column.name not in source.names:
            raise unknown_column(source, column.name)
    fits = {column.name: _FITS[column.kind](column, source, tokenizers) for column in plan.used()}
    rows = 0
    for start, block in source.blocks():
        for name, one in fits.items():
            one.add(block.column(source.names.index(name)), start)
        rows = start + block.num_rows
    if not rows:
        raise source.bad("Data set empty", "The table has no rows below the names.", "Give at least one sample.")
    columns = tuple(fits[column.name].done() if column.name in fits else column for column in plan.columns)
    tokens = sum(one.tokens for one in fits.values() if isinstance(one, _Text))
    return plan.model_copy(update={"columns": columns}), rows, tokens


class _Number:
    def __init__(self, column: NumberColumn, source: TableSource, _: Tokenizers):
        self._column, self._source = column, source
        self._total, self._count, self._values = 0.0, 0, list[cells.Array]()

    def add(self, column: Any, row: int) -> None:
        if self._column.fill is not None or self._column.missing not in ("mean", "median"):
            return
        found = cells.numbers(column)
        if found is None:
            return  # the encoder says where
        present = found[~np.isnan(found)]
        self._total, self._count = self._total + float(present.sum()), self._count + len(present)
        if self._column.missing == "median":
            self._values.append(present)
            if self._count > MAX_MEDIAN_ROWS:
                message = f"Column '{self._column.name[:60]}' has too many values for a median."
                raise self._source.bad("Median", message, 'Use the mean instead: "missing": "mean".')

    def done(self) -> NumberColumn:
        if self._column.fill is not None or self._column.missing == "refuse":
            return self._column
        fill = 0.0
        if self._column.missing in ("mean", "median"):
            if not self._count:
                message = f"Column '{self._column.name[:60]}' has no value at all."
                raise self._source.bad("Values missing", message, 'Leave it out: "kind": "ignore".')
            is_mean = self._column.missing == "mean"
            fill = self._total / self._count if is_mean else float(np.median(np.concatenate(self._values)))
        if not np.isfinite(np.float32(fill)):
            message = f"The {self._column.missing} of column '{self._column.name[:60]}' is beyond float32."
            raise self._source.bad("Not finite", message, "Correct its values, or leave the column out.")
        return self._column.model_copy(update={"fill": fill})


class _Category:
    def __init__(self, column: CategoryColumn, source: TableSource, _: Tokenizers):
        self._column, self._source, self._values = column, source, set[str]()

    def add(self, column: Any, row: int) -> None:
        found = cells.texts(column) if self._column.values is None else None
        if found is None:
            return
        different, indices = found
        named = f"Column '{self._column.name[:60]}' of categories"
        for at, text in enumerate(different):
            if len(text) > MAX_NAME or "\0" in text:
                place = self._source.place(row + int(np.flatnonzero(indices == at)[:1].sum()))
                message = f"{named} has a text with more than {MAX_NAME} characters, or with a NUL, in {place}."
                raise self._source.bad("Categories", message, 'Make tokens of it: "kind": "text", or leave it out.')
        self._values |= {different[at] for at in np.unique(indices[indices >= 0])}
        if self._column.missing == "own" and (indices < 0).any():
            self._values.add("")
        if len(self._values) > MAX_VALUES:
            message = f"{named} has more than {MAX_VALUES:,} different values."
            raise self._source.bad("Categories", message, 'Make tokens of it: "kind": "text", or leave it out.')

    def done(self) -> CategoryColumn:
        if self._column.values is not None:
            return self._column
        return self._column.model_copy(update={"values": tuple(sorted(self._values))})


class _Text:
    def __init__(self, column: TextColumn, source: TableSource, tokenizers: Tokenizers):
        self._column, self._source = column, source
        self._counted = WordCount() if column.tokenizer == WORDS and column.words is None else None
        self._tokenizer = None if self._counted is not None else tokenizers(column)
        self._longest = self.tokens = 0

    def add(self, column: Any, row: int) -> None:
        self._fit(*texts_of(self._source, self._column.name, column))

    def _fit(self, different: list[str], indices: cells.Array) -> None:
        times = np.bincount(indices[indices >= 0], minlength=len(different))
        sizes: list[int] = []
        if self._counted is not None:
            sizes = [self._counted.add(text, int(count)) for text, count in zip(different, times, strict=True)]
            sizes = [size + 1 for size in sizes] if self._column.stream else sizes
        elif self._tokenizer is not None and self._column.stream:
            sizes = list(map(len, self._tokenizer.encode_stream(different)))
        elif self._tokenizer is not None and self._column.length is None:
            sizes = list(map(len, self._tokenizer.encode(different, self._column.max_length)))
        if self._column.stream:
            self.tokens += sum(size * int(count) for size, count in zip(sizes, times, strict=True))
        self._longest = max((self._longest, *sizes))

    def done(self) -> TextColumn:
        column = self._column
        pad = column.pad
        words = column.words
        if self._counted is not None:
            words = self._counted.most_frequent(column.vocabulary)
        if pad is None and not column.stream:
            pad = 0 if self._tokenizer is None else self._tokenizer.pad
            if pad is None:
                message = "The tokenizer has no token for padding."
                raise self._source.bad("Padding", message, 'Say which id pads short texts in the plan: "pad": ID.')
        length = column.length
        if length is None:
            length = SEQUENCE if column.stream else max(1, min(self._longest, column.max_length))
        longest = column.longest if column.longest is not None else self._longest or None
        return column.model_copy(update={"words": words, "pad": pad, "length": length, "longest": longest})


class _List:
    def __init__(self, column: ListColumn, source: TableSource, _: Tokenizers):
        self._column, self._source, self._longest, self._whole = column, source, 0, True

    def add(self, column: Any, row: int) -> None:
        found = cells.lists(column)
        if found is not None:
            lengths, values = found
            self._longest = max(self._longest, int(lengths.max(initial=0)))
            self._whole = self._whole and values.dtype == np.int64

    def done(self) -> ListColumn:
        column = self._column
        if column.length is None and self._longest > column.max_length:
            message = f"Column '{column.name[:60]}' has a list of {self._longest:,} numbers."
            remedy = f"Say how many are kept, at most {MAX_LENGTH:,}: --length NUMBER."
            raise self._source.bad("Long lists", message, remedy)
        length = column.length or max(1, self._longest)
        whole = self._whole if column.whole is None else column.whole
        return column.model_copy(update={"length": length, "whole": whole})


class _Image:
    def __init__(self, column: ImageColumn, source: TableSource, _: Tokenizers):
        self._column, self._source = column, source
        self._size: tuple[int, int] | None = None
        self._grey = True

    def add(self, column: Any, row: int) -> None:
        if self._column.shape is not None:
            return
        for place, content in images_of(self._source, self._column.name, column, row):
            image = pictures.header(self._source.path, place, content)
            size = (image.height, image.width)
            self._grey = self._grey and image.mode in GREY
            self._size = self._size or size
            if size != self._size and self._column.size is None:
                said = " but ".join(f"{height}x{width}" for height, width in (self._size, size))
                message = f"Images are {said} (height x width) in {place}."
                raise self._source.bad("Sizes differ", message, pictures.CHOOSE_SIZE)

    def done(self) -> ImageColumn:
        if self._column.shape is not None:
            return self._column
        height, width = (self._column.size,) * 2 if self._column.size is not None else self._size or (1, 1)
        return self._column.model_copy(update={"shape": (1 if self._grey else 3, height, width)})


def images_of(source: TableSource, name: str, column: Any, row: int) -> Iterator[tuple[str, bytes]]:
    """Place and bytes of each image of a block; raises `BadInput` for other columns, and where one is missing."""
    found = cells.images(column)
    for at, content in enumerate([None] * len(column) if found is None else found):
        if content is None:
            message = f"Column '{name[:60]}' has no image in {source.place(row + at)}."
            raise source.bad("Values missing", message, "Give images as bytes, or leave the row out.")
        yield source.place(row + at), content


def texts_of(source: TableSource, name: str, column: Any) -> tuple[list[str], cells.Array]:
    """The different texts of a block of a column and their numbers; raises `BadInput` for a column without texts."""
    found = cells.texts(column)
    if found is None:
        message = f"Column '{name[:60]}' holds {str(column.type)[:60]}, not texts."
        raise source.bad("Type of data", message, "Correct its kind in the plan, or leave it out.")
    return found


_FITS: Mapping[str, Callable[[Any, TableSource, Tokenizers], _Number | _Category | _Text | _List | _Image]] = {
    "number": _Number,
    "category": _Category,
    "text": _Text,
    "list": _List,
    "image": _Image,
}


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
