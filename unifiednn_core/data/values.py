"""Facts about a data set: notes inside its file, and the preview on the pages. Without torch: the server reads them."""

import json
import re
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError

from unifiednn_core.base.errors import BadInput, Finding
from unifiednn_core.spec.columns import MAX_COLUMNS, NO_TABLE_OPTIONS, ColumnPlan, FrozenModel, TableImportOptions

MAX_CLASS_NAMES = 10_000
MAX_SEED = 2**63 - 1
MAX_IMAGE_SIDE = 4096
BYTE = 255
FEWEST_PIXELS = 64
"""Fewer numbers a sample are no flattened image."""
METADATA_KEY = "unifiednn_data"
_Name = Annotated[str, Field(max_length=200)]
_Remark = Annotated[str, Field(max_length=400)]


class DataNotes(FrozenModel):
    """Facts about a data set: its original file and its parts."""

    origin: Annotated[str, Field(max_length=20)] = ""  # format of the original; empty if the file was not converted
    class_names: Annotated[tuple[_Name, ...], Field(max_length=MAX_CLASS_NAMES)] = ()
    """Name of each class number, if classes had names."""
    columns: Annotated[tuple[_Name, ...], Field(max_length=MAX_COLUMNS)] = ()
    """Columns of a table that became the inputs, in order."""
    target: _Name = ""  # column of a table that became the targets
    part: _Name = ""  # part of a data set that was split, or that came with others in one file
    remarks: Annotated[tuple[_Remark, ...], Field(max_length=20)] = ()  # what the import changed, in sentences
    pad: dict[str, int] = Field(default_factory=dict)
    """Number that fills up short texts and lists, by the name of the input."""
    plan: ColumnPlan | None = None
    """How the columns of a table became numbers, with what was fitted; test data become numbers in the same way."""

    def metadata(self) -> dict[str, str]:
        """Metadata of a safetensors file."""
        said = self.model_dump(mode="json", exclude_defaults=True)
        return {METADATA_KEY: json.dumps(said, sort_keys=True, separators=(",", ":"))}

    @classmethod
    def of(cls, metadata: dict[str, str] | None) -> "DataNotes":
        """Read the notes of a safetensors file; without valid ones, they are empty."""
        try:
            return cls.model_validate_json((metadata or {}).get(METADATA_KEY, "{}"))
        except ValidationError:
            return cls()

    def abridged(self) -> "DataNotes":
        """The notes for people to read."""
        return self if self.plan is None else self.model_copy(update={"plan": self.plan.abridged()})


class ImportOptions(FrozenModel):
    """Choices of the person who imports a data set; the defaults change nothing."""

    size: int | None = Field(default=None, ge=1, le=MAX_IMAGE_SIDE)
    """Height and width of all images: the square in the middle of each, resized."""
    channels_last: bool = False  # the inputs are [samples, height, width, channels]; move the channels forward
    table: TableImportOptions = NO_TABLE_OPTIONS  # how a table or a text becomes numbers


AS_STORED = ImportOptions()


class ValueStats(FrozenModel):
    """Range of the numbers, over all samples."""

    minimum: float
    maximum: float
    mean: float
    std: float


class DataSample(FrozenModel):
    """One sample in readable form."""

    values: str  # the first numbers of the inputs
    target: str
    image: str = ""  # small PNG as a data URI, if the inputs look like an image


class DataPreview(FrozenModel):
    """Statistics and first samples of a data set."""

    inputs: ValueStats
    """Of the first input, if there are several."""
    targets: ValueStats | None = None  # None for class numbers, which are counted
    class_counts: tuple[int, ...] = ()  # targets of each class number; empty for real targets and for very many classes
    not_finite: int = 0  # values that are NaN or infinite
    samples: tuple[DataSample, ...] = ()
    """The first ones, or samples spread over the file if the first are all of one class."""
    notes: DataNotes = DataNotes()
    warnings: tuple[Finding, ...] = ()

    def class_name(self, number: int) -> str:
        """Name of a class, or its number if it has no name."""
        names = self.notes.class_names
        return names[number] if number < len(names) else str(number)


class SplitPlan(FrozenModel):
    """How a data set is split into a training and a test part."""

    test_share: float = Field(default=0.2, gt=0, lt=1)
    seed: int = Field(default=0, ge=0, le=MAX_SEED)
    by_class: bool = True  # whether to split each class by the same share, if targets are class numbers

    def part(self, name: str) -> str:
        """Describe a part: `test 20 %, seed 0, by class`."""
        return f"{name} {self._percent(name)} %, seed {self.seed}{', by class' if self.by_class else ''}"

    def filename(self, name: str, filename: str) -> str:
        """Name the file of a part: `digits-test20-seed0.safetensors`."""
        return f"{filename.rpartition('.')[0] or filename}-{name}{self._percent(name)}-seed{self.seed}.safetensors"

    def _percent(self, name: str) -> str:
        return f"{100 * (self.test_share if name == 'test' else 1 - self.test_share):.4g}"


SPLIT_PART = re.compile(r"-(?:train|test)([0-9.]+)-seed[0-9]+\.safetensors")
"""End of the names that `SplitPlan.filename` gives, with the percentage."""


def part_path(target: Path, part: str) -> Path:
    """Where a further part of a file is written that is converted to `target`."""
    return target.with_name(f"{target.name}.{part}")


def preview_of(facts: dict[str, Any]) -> DataPreview | None:
    """Find the preview among the facts of a file; None if there is none of this version."""
    try:
        return DataPreview.model_validate(facts["preview"])
    except (KeyError, ValidationError):
        return None


def pixel_divisor(most: float) -> float:
    """What makes pixels 0 to 1: 255, or the largest one if all are that dark, such as 16 in digits."""
    return most if 1 <= most <= BYTE / 4 else BYTE


def split_plan(**asked: object) -> SplitPlan:
    """Plan a split; raises `BadInput` for invalid values."""
    try:
        return SplitPlan.model_validate(asked)
    except ValidationError as error:
        remedy = "The share lies between 0 and 1, the seed is a whole number from 0."
        said = [(".".join(map(str, detail["loc"])), f"{detail['msg']}.") for detail in error.errors()]
        raise BadInput([Finding(title="Split", field=at, message=text, remedy=remedy) for at, text in said]) from None
