"""What the intake process is asked and what it answers. No torch here: the server reads them."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from unifiednn_core.base.errors import Finding
from unifiednn_core.data.values import SplitPlan
from unifiednn_core.preflight.prediction import MemoryNeed, Prediction


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class FileReport(_Part):
    """What one file is. `weights` are a model only together with an architecture; a `checkpoint` may be damaged."""

    kind: Literal["model", "weights", "data", "checkpoint", "unknown"]
    format: str
    sha256: str
    size_bytes: int
    facts: dict[str, object] = {}
    findings: tuple[Finding, ...] = ()
    converted: bool = False
    """Whether hash and size are those of the data set that the file was converted into."""


class SubModelReport(_Part):
    """What one sub-model would train, and on what."""

    name: str
    format: str
    parameters: int
    weights_bytes: int
    input_shape: tuple[int | None, ...]
    """Of one sample."""
    samples: int
    test_samples: int | None
    classes: int | None
    steps_per_epoch: int
    operators: tuple[str, ...] = ()
    memory: MemoryNeed | None = None
    """What it needs on its device; None if a step could not be tried."""


class CheckedSubModel(_Part):
    """What the check of one sub-model found; without a report where a file cannot be read."""

    report: SubModelReport | None = None
    findings: tuple[Finding, ...] = ()


class ResolvedFile(_Part):
    """A file that a spec names."""

    path: Path
    sha256: str
    size_bytes: int
    filename: str
    report: FileReport | None = None
    """What the file is, once it is in the home."""


class SplitReport(_Part):
    """The two parts of a data set, which lie under the hash of their content; none if there is a finding."""

    findings: tuple[Finding, ...] = ()
    train: FileReport | None = None
    test: FileReport | None = None


class CheckReport(_Part):
    """Everything that was found out about a spec. A sub-model with an error finding may be missing."""

    findings: tuple[Finding, ...] = ()
    submodels: dict[str, SubModelReport] = {}
    files: dict[str, ResolvedFile] = {}
    """By the name that the spec gives them."""
    prediction: Prediction | None = None
    """Memory of the whole run; there where every sub-model could be tried."""

    @property
    def has_errors(self) -> bool:
        """Whether anything forbids the start."""
        return any(finding.severity == "error" for finding in self.findings)


class InspectJob(_Part):
    """Say what a file is; a data set that cannot be mapped is written to `convert_to` first, where that is given."""

    action: Literal["inspect"] = "inspect"
    path: Path
    filename: str
    convert_to: Path | None = None


class SplitJob(_Part):
    """Split a data set in two and keep both parts in the home."""

    action: Literal["split"] = "split"
    path: Path
    filename: str
    plan: SplitPlan
    home: Path


class SpecJob(_Part):
    """Check a spec, a JSON document; `admit` also copies its files into the home where no error was found."""

    action: Literal["check"] = "check"
    admit: bool
    spec: str
    base: Path
    home: Path


class Request(_Part):
    """One job, with the settings of the caller that it depends on."""

    job: Annotated[InspectJob | SplitJob | SpecJob, Field(discriminator="action")]
    environment: dict[str, str] = {}
