"""Fits a plan to a table: means, categories, vocabularies and lengths. Reads the table once, block by block."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from unifiednn_core.data import cells, pictures
from unifiednn_core.data.proposal import unknown_column
from unifiednn_core.data.tables import TableSource
from unifiednn_core.data.tokenizer_file import TokenizerFile, WordCount, WordTokenizer
from unifiednn_core.formats.predict import GREY
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
