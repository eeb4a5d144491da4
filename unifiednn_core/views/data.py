"""What is told about a data set: notes that travel inside its file, and the preview that pages draw.

No torch here: the server reads them.
"""

import json
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from unifiednn_core.errors import BadInput, Finding

MAX_CLASS_NAMES = 10_000
MAX_COLUMNS = 16_384
MAX_SEED = 2**63 - 1
METADATA_KEY = "unifiednn_data"
_Name = Annotated[str, Field(max_length=200)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class DataNotes(_Part):
    """What a converted data set keeps of the file that it came from."""

    origin: Annotated[str, Field(max_length=20)] = ""
    """Format that was handed in; empty where the file is as it was handed in."""
    class_names: Annotated[tuple[_Name, ...], Field(max_length=MAX_CLASS_NAMES)] = ()
    """Name of each class number, where classes had names."""
    columns: Annotated[tuple[_Name, ...], Field(max_length=MAX_COLUMNS)] = ()
    """Columns of a table that became the inputs, in order."""
    target: _Name = ""
    """Column of a table that became the targets."""
    part: _Name = ""
    """Which part of a data set this is, where it was split."""

    def metadata(self) -> dict[str, str]:
        """Metadata of a safetensors file."""
        return {METADATA_KEY: json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))}

    @classmethod
    def of(cls, metadata: dict[str, str] | None) -> "DataNotes":
        """Notes of a safetensors file; empty where it has none that can be read."""
        try:
            return cls.model_validate_json((metadata or {}).get(METADATA_KEY, "{}"))
        except ValidationError:
            return cls()


class ValueStats(_Part):
    """Range of the numbers, over all samples."""

    minimum: float
    maximum: float
    mean: float
    std: float


class DataSample(_Part):
    """One sample, as a person can read it."""

    values: str
    """The first numbers of the inputs."""
    target: str
    image: str = ""
    """Small PNG as a data URI, where the inputs look like an image."""


class DataPreview(_Part):
    """What a data set is like, seen at intake."""

    inputs: ValueStats
    targets: ValueStats | None = None
    """None where targets are class numbers that are counted."""
    class_counts: tuple[int, ...] = ()
    """Targets of each class number; empty where targets are no class numbers, or where there are very many classes."""
    not_finite: int = 0
    """Values that are NaN or infinite."""
    samples: tuple[DataSample, ...] = ()
    """The first ones; some from all over the file where the first are all of one class."""
    notes: DataNotes = DataNotes()
    warnings: tuple[Finding, ...] = ()

    def class_name(self, number: int) -> str:
        """Name of a class, or its number where it has none."""
        names = self.notes.class_names
        return names[number] if number < len(names) else str(number)


class SplitPlan(_Part):
    """How a data set is parted into one to train on and one to test with."""

    test_share: float = Field(default=0.2, gt=0, lt=1)
    seed: int = Field(default=0, ge=0, le=MAX_SEED)
    by_class: bool = True
    """Whether each class is parted by the same share, where targets are class numbers."""

    def part(self, name: str) -> str:
        """What a part is, for people: `test 20 %, seed 0, by class`."""
        share = self.test_share if name == "test" else 1 - self.test_share
        return f"{name} {100 * share:.4g} %, seed {self.seed}{', by class' if self.by_class else ''}"

    def filename(self, name: str, filename: str) -> str:
        """Name of a part: `digits-test20-seed0.safetensors`."""
        share = self.test_share if name == "test" else 1 - self.test_share
        return f"{filename.rpartition('.')[0] or filename}-{name}{100 * share:.4g}-seed{self.seed}.safetensors"


def preview_of(facts: dict[str, Any]) -> DataPreview | None:
    """Preview among the facts of a file; None where there is none, or one of another version."""
    try:
        return DataPreview.model_validate(facts["preview"])
    except (KeyError, ValidationError):
        return None


def split_plan(**asked: object) -> SplitPlan:
    """Plan of a split; raises `BadInput` for values that cannot be."""
    try:
        return SplitPlan.model_validate(asked)
    except ValidationError as error:
        raise BadInput(
            [
                Finding(
                    title="Split",
                    field=".".join(map(str, detail["loc"])),
                    message=f"{detail['msg']}.",
                    remedy="The share lies between 0 and 1, the seed is a whole number of at least 0.",
                )
                for detail in error.errors()
            ]
        ) from None
