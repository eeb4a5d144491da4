"""How the columns of a table become numbers: declared or proposed, with what was fitted on the training data. Pure.

A plan without its fitted values is what a person declares. The fitted plan is kept in the notes of the converted file,
so that test data become numbers in the same way.
"""

import json
from collections.abc import Iterator
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from unifiednn_core.base.errors import BadInput
from unifiednn_core.spec.findings import finding_of

WORDS = "words"
"""The tokenizer that needs no file: lower case, cut at white space, the most frequent words of the training data."""
RESERVED = ("<pad>", "<unknown>", "<end>")
"""Ids 0, 1 and 2 of that tokenizer; the words follow."""
PAD, UNKNOWN, END = range(3)
MAX_COLUMNS = 16_384
MAX_VALUES = 10_000  # categories of a column
MAX_NAME = 200  # characters of a category or a column
MAX_LENGTH = 2**16  # tokens of a text
MAX_WORDS = 100_000
MAX_WORD = 64  # characters; longer words are unknown
ABRIDGED = 100  # columns and values that a preview shows

Name = Annotated[str, Field(min_length=1, max_length=MAX_NAME)]
InputName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")]
Value = Annotated[str, Field(max_length=MAX_NAME)]
Length = Annotated[int, Field(ge=1, le=MAX_LENGTH)]


class FrozenModel(BaseModel):
    """Values that nobody changes, without any that are not declared."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class NumberColumn(FrozenModel):
    """Numbers, as float32, or int64 if `whole`.

    `input` is the input of the network; numbers and categories with the same one become one tensor [samples, features].
    """

    kind: Literal["number"]
    name: Name
    input: InputName = "inputs"
    whole: bool = False
    missing: Literal["refuse", "mean", "median", "zero", "flag"] = "refuse"
    """What a missing value becomes; `flag`: zero, and a further column that is 1 where a value is missing, else 0."""
    fill: FiniteFloat | None = None  # fitted


class CategoryColumn(FrozenModel):
    """One of few texts: its number in the sorted list of values, as int64, or one float32 column for each value."""

    kind: Literal["category"]
    name: Name
    input: InputName = "inputs"
    one_hot: bool = False
    missing: Literal["refuse", "own"] = "refuse"
    """`own`: a missing value is a category of its own, named by the empty text."""
    values: Annotated[tuple[Value, ...], Field(max_length=MAX_VALUES)] | None = None  # fitted


class TextColumn(FrozenModel):
    """Texts as int64 ids of tokens, padded to one length; a missing text is an empty one."""

    kind: Literal["text"]
    name: Name
    input: InputName = "inputs"
    tokenizer: Annotated[str, Field(pattern=rf"^({WORDS}|[0-9a-f]{{64}})$")] = WORDS
    """`words`, or the hash of a tokenizer.json in the library."""
    vocabulary: Annotated[int, Field(ge=1, le=MAX_WORDS)] = 10_000
    """For `words`: how many of the most frequent words get an id."""
    length: Length | None = None
    """Tokens of each sample: longer texts are cut. None: as the longest text has, but at most `max_length`; fitted."""
    max_length: Length = 512
    mask: bool = False
    """Whether a further input is 1 for each token and 0 for padding."""
    stream: bool = False
    """Whether all texts are one stream of tokens, cut into samples of `length`, to learn to predict the next token."""
    pad: Annotated[int, Field(ge=0)] | None = None  # fitted if it is not given
    words: Annotated[tuple[Value, ...], Field(max_length=MAX_WORDS)] | None = None  # fitted
    longest: int | None = None  # fitted: tokens of the longest text, at most `max_length`


class ListColumn(FrozenModel):
    """Lists of numbers, padded to one length: int64 if all are whole, else float32."""

    kind: Literal["list"]
    name: Name
    input: InputName = "inputs"
    length: Length | None = None
    """Numbers of each sample: longer lists are cut. None: as the longest list has, at most `max_length`; fitted."""
    max_length: Length = 4096
    pad: int = 0
    whole: bool | None = None  # fitted if it is not given
    mask: bool = False


class ImageColumn(FrozenModel):
    """Images, PNG or JPEG, as uint8 [channels, height, width]: one channel if all are grey, else three."""

    kind: Literal["image"]
    name: Name
    input: InputName = "inputs"
    size: Annotated[int, Field(ge=1, le=4096)] | None = None
    """Height and width: the square in the middle of each, resized. None: all have one size."""
    shape: tuple[int, int, int] | None = None  # fitted: channels, height and width


class IgnoredColumn(FrozenModel):
    """A column that is left out."""

    kind: Literal["ignore"]
    name: Name


UsedColumn: TypeAlias = NumberColumn | CategoryColumn | TextColumn | ListColumn | ImageColumn
ALONE = ("text", "list", "image")
"""Kinds of columns that are an input by themselves."""
Column = Annotated[UsedColumn | IgnoredColumn, Field(discriminator="kind")]


class ColumnPlan(FrozenModel):
    """What becomes of each column of a table; columns that are not named are left out."""

    columns: Annotated[tuple[Column, ...], Field(max_length=MAX_COLUMNS)]
    target: Name | None = None
    """Column of the targets; None if the data have none."""
    header: bool = True
    """Whether the first line of a CSV file names the columns; otherwise they are `column 1`, `column 2` and so on."""

    @model_validator(mode="after")
    def _fits_together(self) -> "ColumnPlan":
        names = [column.name for column in self.columns]
        if len(set(names)) != len(names):
            raise _refused("columns", f"Column '{_twice(names)}' is named twice. Name each column once.")
        if self.target is not None and self.target not in {column.name for column in self.used()}:
            raise _refused(
                "target", f"The plan does not say how '{self.target}' becomes numbers. Add it to the columns."
            )
        if any(column.kind == "image" and column.name == self.target for column in self.used()):
            raise _refused("target", "The targets cannot be images. Give another column of targets.")
        used = [column for column in self.used() if column.name != self.target]
        if not used:
            raise _refused("columns", "No column becomes an input. Add one that is not the target.")
        alone = [column.input for column in used if column.kind in ALONE]
        inputs = [column.input for column in used]
        shared = [name for name in alone if inputs.count(name) > 1]
        if shared:
            message = f"A text, list or image shares the input '{shared[0]}' with others. Give each its own 'input'."
            raise _refused("columns", message)
        if len(set(inputs)) > 1 and "inputs" in inputs:
            raise _refused("columns", "One of several inputs has no name. Give each column an 'input'.")
        streams = any(column.kind == "text" and column.stream for column in used)
        if streams and (len(used) > 1 or self.target is not None):
            raise _refused("columns", "A stream of tokens has other columns beside it. Ignore them; it has no target.")
        return self

    def used(self) -> Iterator[UsedColumn]:
        """The columns that become numbers, the target among them."""
        return (column for column in self.columns if column.kind != "ignore")

    def tokenizers(self) -> frozenset[str]:
        """Hashes of the tokenizer files that this plan needs."""
        return frozenset(column.tokenizer for column in self.used() if column.kind == "text") - {WORDS}

    def otherwise(self, other: "ColumnPlan") -> tuple[str, ...]:
        """Columns that became numbers in another way by the other plan: other categories, words or filled-in values."""
        theirs = {column.name: column for column in other.used()}
        return tuple(one.name for one in self.used() if one.name in theirs and _differ(one, theirs[one.name]))

    def abridged(self) -> "ColumnPlan":
        """The plan for people to read: without vocabularies, and with the first columns and categories alone."""
        shown = [column for column in self.columns if column.name == self.target]
        shown += [column for column in self.columns if column.name != self.target][:ABRIDGED]
        order = [column.name for column in self.columns]
        columns = sorted((_abridged(column) for column in shown), key=lambda column: order.index(column.name))
        return self.model_copy(update={"columns": tuple(columns)})


class TableImportOptions(FrozenModel):
    """The user's options for a table or a text to import; a table of numbers needs none."""

    plan: ColumnPlan | None = None
    like: Annotated[str, Field(pattern=r"^([0-9a-f]{64})?$")] = ""
    """Hash of a converted data set: this file becomes numbers in the same way."""
    target: str | None = None
    """Column of the targets; empty: there is none; None: it is found by its name, or the last."""
    text_columns: tuple[str, ...] = ()
    """Columns of texts to read; others are then left out."""
    ignore: tuple[str, ...] = ()
    tokenizer: Annotated[str, Field(pattern=rf"^({WORDS}|[0-9a-f]{{64}})?$")] = ""
    length: Length | None = None
    vocabulary: Annotated[int, Field(ge=1, le=MAX_WORDS)] = 10_000
    mask: bool = False
    stream: bool = False
    size: Annotated[int, Field(ge=1, le=4096)] | None = None  # height and width of images
    header: bool | None = None  # None: judged by the first lines
    text: bool = False  # whether the file is plain text, not a table


NO_TABLE_OPTIONS = TableImportOptions()


def parse_plan(document: object) -> ColumnPlan:
    """Check a plan as JSON or as plain values; raises `BadInput`."""
    try:
        data = json.loads(document) if isinstance(document, str | bytes) else document
    except ValueError as error:
        remedy = 'A plan has {"columns": [{"kind": "number", "name": "age"}], "target": "label"}.'
        raise BadInput.of("Column plan", "plan", f"This is no JSON: {error}.", remedy) from None
    try:
        return ColumnPlan.model_validate(data)
    except ValidationError as error:
        raise BadInput([finding_of(detail, data) for detail in error.errors()]) from None


def _differ(one: UsedColumn, other: UsedColumn) -> bool:
    if one.kind == "number" and other.kind == "number":
        return one.fill is not None and other.fill is not None and one.fill != other.fill
    if one.kind == "category" and other.kind == "category":
        return (one.values, one.one_hot) != (other.values, other.one_hot)
    if one.kind == "text" and other.kind == "text":
        return (one.tokenizer, one.words, one.pad) != (other.tokenizer, other.words, other.pad)
    return one.kind != other.kind


def _abridged(column: Column) -> Column:
    if column.kind == "text" and column.words is not None:
        return column.model_copy(update={"words": ()})
    if column.kind == "category" and column.values is not None:
        return column.model_copy(update={"values": column.values[:ABRIDGED]})
    return column


def _refused(field: str, message: str) -> PydanticCustomError:
    return PydanticCustomError("duplicate_name", "{said}", {"said": message, "field": field})


def _twice(names: list[str]) -> str:
    return next(name for name in names if names.count(name) > 1)
