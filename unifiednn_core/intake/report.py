"""What intake says about files and specs, as values that pass between processes.

No torch here: the server reads them.
"""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from unifiednn_core.errors import Finding
from unifiednn_core.memory.need import MemoryNeed
from unifiednn_core.views.memory import Prediction


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
    """What it needs on its device; None where a step could not be tried."""


class ResolvedFile(_Part):
    """A file that a spec names."""

    path: Path
    sha256: str
    size_bytes: int
    filename: str
    report: FileReport | None = None
    """What the file is; there once it is taken in."""


class SplitReport(_Part):
    """The two parts of a data set, which lie under the hash of their content; none where there is a finding."""

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
