"""Proposes a plan for the columns of a table: it looks at every value once, and at the user's wishes."""

import re
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from unifiednn_core.base.errors import BadInput
from unifiednn_core.data import cells
from unifiednn_core.data.tables import TableSource
from unifiednn_core.spec.columns import (
    ALONE,
    MAX_NAME,
    MAX_VALUES,
    WORDS,
    CategoryColumn,
    Column,
    ColumnPlan,
    IgnoredColumn,
    ImageColumn,
    ListColumn,
    NumberColumn,
    TableImportOptions,
    TextColumn,
    UsedColumn,
)

FEW_VALUES = 64  # categories that are proposed for an input, one column each
TARGET_NAMES = ("target", "label")
NAME_THE_TARGET = "Name the column of the targets 'target' or 'label', or say which it is: --target NAME."
_DECIMAL_COMMA = re.compile(r"[-+]?(\d+|\d{1,3}(\.\d{3})+),\d+")
_CLASSES = 'If they are names of classes, say so in a plan: "kind": "category".'
_THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2}(,\d{3})+(\.\d*)?")
_Kind = Literal["number", "category", "text", "list", "image", "ignore", "other"]


class _Seen:
    """What the values of one column are, as far as they were read."""

    def __init__(self, name: str) -> None:
        self.name, self.rows, self.missing, self.not_numbers, self.longest = name, 0, 0, 0, 0
        self.numbers = self.whole = self.lists = self.texts = self.images = True
        self.values: set[str] | None = set()
        """Different texts; None for too many, or for too long ones."""
        self.type = ""
        self.odd: tuple[str, int] | None = None
        """First text that is not a number, and its row."""

    def add(self, column: Any, row: int) -> None:
        """Look at a block; `row` is the number of its first row."""
        self.rows += len(column)
        if column.null_count == len(column):
            self.missing += len(column)
            return
        self.type = str(column.type)[:60]
        found = cells.numbers(column)
        self.missing += int(np.isnan(found).sum()) if found is not None else column.null_count
        self.whole = self.whole and cells.whole_numbers(column) is not None
        self.lists = self.lists and cells.lists(column) is not None
        self.numbers = self.numbers and found is not None
        self.images = self.images and cells.images(column) is not None
        if found is None or (self.values is not None and cells.is_text(column)):
            self._add_texts(column, row, numbers=found is not None)

    def _add_texts(self, column: Any, row: int, *, numbers: bool) -> None:
        found = cells.texts(column)
        if found is None:
            self.texts, self.values = False, None
            return
        different, indices = found
        self.longest = max((self.longest, *map(len, different)))
        if self.odd is None and not numbers:
            odd = next(at for at, text in enumerate(different) if not cells.is_number(text))
            self.odd = (different[odd][:40], row + int(np.flatnonzero(indices == odd)[0]))
        if self.values is not None:
            self.values |= set(different)
            if len(self.values) > MAX_VALUES or self.longest > MAX_NAME:
                self.values = None

    @property
    def kind(self) -> _Kind:
        """What the column is without a wish of the user."""
        if self.missing == self.rows:
            return "ignore"
        if self.numbers or self.lists:
            return "number" if self.numbers else "list"
        if self.images:
            return "image"
        if not self.texts:
            return "other"
        return "text" if self.values is None else "category"

    @property
    def written_with_commas(self) -> str:
        """How to write its numbers without commas; empty if it has none, or other texts."""
        if self.odd is None:
            return ""
        odd = self.odd[0]
        with_comma = {text for text in self.values or {odd} if not cells.is_number(text)}
        plain, with_point = odd.replace(",", ""), odd.replace(".", "").replace(",", ".")
        if not all(map(_THOUSANDS.fullmatch, with_comma)):
            decimal = all(map(_DECIMAL_COMMA.fullmatch, with_comma))
            return f"Write numbers with a decimal point: {with_point}" if decimal else ""
        if odd.count(",") > 1 or "." in odd:
            return f"Write numbers without separators of thousands: {plain}"
        return f"Write {plain} if the comma separates thousands, or {with_point} if it is a decimal comma"

    @property
    def mixed(self) -> bool:
        """Whether at least half of its values are numbers, and some are not."""
        values = self.values or {""}
        return self.odd is not None and 2 * sum(map(cells.is_number, values)) >= len(values)


def propose(source: TableSource, wish: TableImportOptions) -> ColumnPlan:
    """Propose a plan; raises `BadInput` with a finding for each column that needs a wish of the user."""
    target = _target_of(source, wish)
    known = {*source.names}
    for name in (*wish.text_columns, *wish.ignore):
        if name not in known:
            raise unknown_column(source, name)
    seen = [_Seen(name) for name in source.names]
    rows = 0
    for start, block in source.blocks():
        rows = start + block.num_rows
        for one, column in zip(seen, block.columns, strict=True):
            if one.name not in wish.ignore:
                one.add(column, start)
    if not rows:
        raise source.bad("Data set empty", "The table has no rows below the names.", "Give at least one sample.")
    problems: list[BadInput] = []
    columns: list[Column] = []
    for one in seen:
        try:
            is_target = one.name == target
            columns.append(_target(source, one, wish) if is_target else _input(source, one, wish))
        except BadInput as error:
            problems.append(error)
    if problems:
        raise BadInput([finding for error in problems for finding in error.findings])
    if not any(column.kind != "ignore" and column.name != target for column in columns):
        message = "Every column beside the target is left out or has no value at all."
        raise source.bad("Columns", message, "Give at least one column of inputs.")
    return ColumnPlan(columns=tuple(_named(columns, target)), target=target, header=source.header)


def unknown_column(source: TableSource, name: str) -> BadInput:
    """The finding for a column that the file does not have."""
    named = ", ".join(f"'{known[:40]}'" for known in source.names[:8]) + (" …" if len(source.names) > 8 else "")
    return source.bad("Columns", f"There is no column '{name[:60]}'. There are {named}.", "Correct the name.")


def _target_of(source: TableSource, wish: TableImportOptions) -> str | None:
    """Find the column of the targets: by the user's wish, by its name, else the last one."""
    if wish.stream or wish.target == "":
        return None
    if wish.target is not None:
        if wish.target not in source.names:
            raise unknown_column(source, wish.target)
        return wish.target
    left = [name for name in source.names if name not in wish.ignore and name not in wish.text_columns]
    lower = [name.strip().lower() for name in left]
    found = next((left[lower.index(name)] for name in TARGET_NAMES if name in lower), left[-1] if left else None)
    if found is None or len(source.names) < 2:
        message = f"The table has {len(source.names)} column{'s' * (len(source.names) != 1)}, and none for the targets."
        remedy = "Give one column of targets and at least one of inputs, or say that there are no targets: --no-target."
        raise source.bad("Columns", message, remedy)
    return found


def _target(source: TableSource, seen: _Seen, wish: TableImportOptions) -> UsedColumn:
    if seen.kind in ("other", "ignore", "image"):
        said = f"holds {seen.type}; numbers or class names are needed" if seen.type else "has no value at all"
        raise source.bad("Targets", f"The column '{seen.name[:60]}' of the targets {said}.", NAME_THE_TARGET)
    if seen.kind == "number":
        return NumberColumn(kind="number", name=seen.name, whole=seen.whole)
    if seen.kind == "list":
        return ListColumn(kind="list", name=seen.name, length=wish.length)
    if seen.name in wish.text_columns:
        return _text(seen, wish)
    if seen.written_with_commas:
        raise source.bad("Not a number", _not_a_number(source, seen), f"{seen.written_with_commas}. {_CLASSES}")
    if seen.kind == "text":
        problem = "long texts instead of class names"
        if seen.longest <= MAX_NAME:
            problem = f"more than {MAX_VALUES:,} different texts"
        message = f"The column '{seen.name[:60]}' of the targets holds {problem}."
        raise source.bad("Targets", message, NAME_THE_TARGET)
    return CategoryColumn(kind="category", name=seen.name)


def _input(source: TableSource, seen: _Seen, wish: TableImportOptions) -> Column:
    name, named = seen.name, f"Column '{seen.name[:60]}'"
    if name in wish.text_columns:
        return _text(seen, wish)
    if name in wish.ignore or seen.kind == "ignore" or wish.stream:
        return IgnoredColumn(kind="ignore", name=name)
    if seen.kind == "number":
        return NumberColumn(kind="number", name=name, missing="mean" if seen.missing else "refuse")
    if seen.kind == "list":
        return ListColumn(kind="list", name=name, length=wish.length, mask=wish.mask)
    if seen.kind == "image":
        return ImageColumn(kind="image", name=name, size=wish.size)
    leave_out = f"leave the column out with --ignore '{name[:60]}'"
    if seen.kind == "other":
        message = f"{named} holds {seen.type}; numbers, texts or lists of numbers are needed."
        raise source.bad("Type of data", message, f"Turn it into numbers, or {leave_out}.")
    if seen.written_with_commas or seen.mixed:
        correct = seen.written_with_commas or "Correct the value"
        raise source.bad("Not a number", _not_a_number(source, seen), f"{correct}, leave it empty, or {leave_out}.")
    few = seen.values is not None and len(seen.values) <= FEW_VALUES
    if few and (not wish.tokenizer or wish.text_columns or not _is_prose(seen.values or ())):
        missing: Literal["own", "refuse"] = "own" if seen.missing else "refuse"
        return CategoryColumn(kind="category", name=name, one_hot=True, missing=missing)
    if wish.text_columns:
        return IgnoredColumn(kind="ignore", name=name)
    if wish.tokenizer:
        return _text(seen, wish)
    many = f"more than {FEW_VALUES} different texts, the longest of {seen.longest:,} characters"
    remedy = f"Make tokens of them with --tokenizer words or --tokenizer tokenizer.json, or {leave_out}."
    raise source.bad("Texts", f"{named} holds {many}.", remedy)


def _not_a_number(source: TableSource, seen: _Seen) -> str:
    text, row = seen.odd or ("", 0)
    why = ": it has a comma" if seen.written_with_commas else ", as others in the column are"
    return f"Column '{seen.name[:60]}': {source.place(row)}: '{text}' is not a number{why}."


def _text(seen: _Seen, wish: TableImportOptions) -> TextColumn:
    return TextColumn(
        kind="text",
        name=seen.name,
        tokenizer=wish.tokenizer or WORDS,
        length=wish.length,
        mask=wish.mask,
        vocabulary=wish.vocabulary,
        stream=wish.stream,
    )


def _named(columns: Sequence[Column], target: str | None) -> list[Column]:
    """Give each text and list an input of its own where there are several inputs; numbers share `features`."""
    used = [column for column in columns if column.kind != "ignore" and column.name != target]
    alone = [column for column in used if column.kind in ALONE]
    if not alone or len(used) == 1:
        return list(columns)
    named: list[Column] = []
    for column in columns:
        if column in used:
            name = "features" if column not in alone else _slug(column.name)
            taken = {one.input for one in named if one.kind != "ignore"} if column in alone else set()
            name = next(free for free in (name, *(f"{name}_{n}" for n in range(2, len(used) + 3))) if free not in taken)
            named.append(column.model_copy(update={"input": name}))
        else:
            named.append(column)
    return named


def _slug(name: str) -> str:
    plain = re.sub(r"[^0-9A-Za-z_]+", "_", name).strip("_")[:50] or "text"
    return f"text_{plain}" if plain[0].isdigit() or plain in ("inputs", "features", "targets") else plain


def _is_prose(values: Sequence[str] | set[str]) -> bool:
    """Whether texts are sentences rather than names: five words each."""
    return sum(len(value.split()) for value in values) >= 5 * len(values)
