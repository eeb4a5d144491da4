"""Jobs of the intake process and its answers. No torch here: the server reads them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, TypeAdapter

from unifiednn_core.base.errors import Finding
from unifiednn_core.data.values import AS_STORED, ImportOptions, SplitPlan
from unifiednn_core.preflight.prediction import MemoryNeed, Prediction
from unifiednn_core.spec.run import SubModelSpec
from unifiednn_core.techniques.placement.plan import PlacementPlan

FileKind = Literal["model", "weights", "data", "checkpoint", "tokenizer", "unknown"]
"""`weights` are a model only together with an architecture; a `checkpoint` may be damaged."""


class FileReport(BaseModel, frozen=True, extra="forbid"):
    """Kind and content of one file."""

    kind: FileKind
    format: str
    sha256: str
    size_bytes: int
    facts: dict[str, object] = {}
    findings: tuple[Finding, ...] = ()
    converted: bool = False
    """Whether hash and size are those of the data set that the file was converted into."""
    part: str = ""  # of a data set that came with others in one file, such as "train"
    others: tuple["FileReport", ...] = ()
    """The further parts of such a file; each is in `part_path` of the place that was asked for."""


class WithoutTechniques(BaseModel, frozen=True, extra="forbid"):
    """What a step of a sub-model needs without its techniques, as measured."""

    memory: MemoryNeed
    """Without any."""
    without_one: dict[str, int]
    """Transient bytes without one of them and with the others, by its name."""
    seconds_per_step: float | None = None
    """Without any, with its share of the evaluations; None where no step was timed."""

    @property
    def transient_bytes(self) -> int:
        """Of a step without any."""
        return self.memory.transient_bytes


class NodesReport(BaseModel, frozen=True, extra="forbid"):
    """Virtual nodes that a spec leaves open, as numbers."""

    nodes: int
    shares: list[int] | None = None


class PlacementReport(BaseModel, frozen=True, extra="forbid"):
    """A network on several devices."""

    runs: list[list[int]]
    """The plan as a spec has it."""
    plan: PlacementPlan
    """One simulated step; without its tasks if they are very many."""


class SubModelReport(BaseModel, frozen=True, extra="forbid"):
    """Network, data and memory need of one sub-model."""

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
    """Need on its device; None if no step could be tried."""
    streamed: bool = False
    """Whether its data are streamed from their files; if not, they are resident."""
    seconds_per_step: float | None = None
    """As timed on a CPU, with its share of the evaluations; None on a GPU, and if no step could be timed."""
    evaluation_share: float = 0.0
    """Part of these seconds that evaluations take."""
    least_part: int = 1
    """Samples that a part of a batch has to have, unless it was tried with fewer."""
    part_times_s: tuple[dict[int, float], ...] = ()
    """Seconds of a part by its samples, for each logical device; empty unless shares are to be measured."""
    placement: PlacementReport | None = None
    """Where each operator runs, if the spec asks for several devices."""
    nodes: NodesReport | None = None
    """Virtual nodes, where the spec leaves them open."""
    whole: MemoryNeed | None = None
    """Need of a network in one piece and without techniques, where it is joined of its parts; None of others."""
    without_techniques: WithoutTechniques | None = None
    """None without techniques, and if this could not be measured."""


class CheckedSubModel(BaseModel, frozen=True, extra="forbid"):
    """What the check of one sub-model found; without a report if a file cannot be read."""

    report: SubModelReport | None = None
    findings: tuple[Finding, ...] = ()


class ResolvedFile(BaseModel, frozen=True, extra="forbid"):
    """A file that a spec names."""

    path: Path
    sha256: str
    size_bytes: int
    filename: str


class SplitReport(BaseModel, frozen=True, extra="forbid"):
    """The two parts of a data set, stored under the hash of their content; none if there is a finding."""

    findings: tuple[Finding, ...] = ()
    train: FileReport | None = None
    test: FileReport | None = None


class CheckReport(BaseModel, frozen=True, extra="forbid"):
    """Everything that a check found out about a spec. A sub-model with an error finding may be missing."""

    findings: tuple[Finding, ...] = ()
    submodels: dict[str, SubModelReport] = {}
    files: dict[str, ResolvedFile] = {}
    """By the name that the spec gives them."""
    prediction: Prediction | None = None
    """Memory of the whole run, if every sub-model could be tried."""
    at_s: float | None = None
    """When it was found out (UTC seconds), if it is kept and valid."""

    @property
    def has_errors(self) -> bool:
        """Whether anything prevents the start."""
        return any(finding.severity == "error" for finding in self.findings)


class CheckProgress(BaseModel, frozen=True, extra="forbid"):
    """What a check does now."""

    text: str
    """Such as "Trying a step of resnet"; no sentence of its own."""
    place: int
    """Which of the sub-models it is about, from 1."""
    total: int
    """How many sub-models the spec has."""

    @property
    def line(self) -> str:
        """All of it in one line."""
        return f"{self.text} ({self.place} of {self.total})…"


PROGRESS = b"~"
"""Begins each line of an answer that is a `CheckProgress`; they come before the report."""
Tell = Callable[[CheckProgress], object]
"""Called with what is done next."""


def untold(_: CheckProgress) -> None:
    """Ignore it."""


class InspectJob(BaseModel, frozen=True, extra="forbid"):
    """Describe a file; with `convert_to`, a data set that cannot be mapped is written there first."""

    path: Path
    filename: str
    convert_to: Path | None = None
    options: ImportOptions = AS_STORED
    home: Path | None = None
    """Where the files of the library are that the options name."""


class SplitJob(BaseModel, frozen=True, extra="forbid"):
    """Split a data set in two and keep both parts in the home."""

    path: Path
    filename: str
    plan: SplitPlan
    home: Path


class SpecJob(BaseModel, frozen=True, extra="forbid"):
    """Check a spec, a JSON document."""

    spec: str
    base: Path
    home: Path


class OracleJob(BaseModel, frozen=True, extra="forbid"):
    """Train a `.pt2` for a few steps as torch itself reads it, on the data of a sub-model; `scratch` is a folder."""

    model: Path
    train_data: Path
    submodel: SubModelSpec
    scratch: Path


class OracleReport(BaseModel, frozen=True, extra="forbid"):
    """Whether a network trains to the same bits as torch itself reads it."""

    answer: Literal["same", "differs", "none", "not applicable"]
    text: str
    """How much was compared, where the bits differ first, or why there is no answer; no sentence of its own."""


class CertifyJob(BaseModel, frozen=True, extra="forbid"):
    """Compare the zip of a separated model with what the hybrid gave, in a temporary folder in `scratch`."""

    archive: Path
    scratch: Path
    submodel: SubModelSpec | None = None
    """Its part of the spec, with files by content; None for a zip from elsewhere, which holds one."""
    upload: Path | None = None
    """The model file that was submitted; None if it is not at hand."""
    probes: Path | None = None
    """Where they are kept; None for those in the zip."""
    model: str | None = None
    """Name of the model file in the zip; None for the one that its own certificate names."""
    state_sha256: str | None = None
    """Of the weights that were separated; None for what its own certificate says."""
    put_in: bool = False
    """Whether to put the certificate into the zip."""
    device: str = "cpu"
    """Where to run the files if that works: a GPU that trained the network, and has the memory."""
    data: Path | None = None
    """The data set that the probes are the first samples of; None if it is not at hand."""
    facts: dict[str, Any] = {}
    """About its training data."""


class CertificateCheck(BaseModel, frozen=True, extra="forbid"):
    """One thing that a certificate says about a model file."""

    what: Literal["files", "weights", "keys", "outputs", "answers"]
    outcome: Literal["equal", "differs", "not compared"]
    text: str
    """What was compared and how, or why not; a sentence."""


class Certificate(BaseModel, frozen=True, extra="forbid"):
    """What the file of a separated model was compared with, in a process that knows nothing of the hybrid."""

    version: Literal[1] = 1
    submodel: str
    model: str
    """Name of the model file."""
    made_at_s: float
    """UTC seconds."""
    holds: bool
    """Whether nothing differs, and the weights were compared."""
    compared: tuple[CertificateCheck, ...]
    state_sha256: str
    """Hash of the weights, as the hybrid separated them."""
    tensors: int = 0
    """Weights and buffers in the model file."""
    files: dict[str, str] = {}
    """SHA-256 of each file beside this one."""
    versions: dict[str, str] = {}
    """Of torch, Python and UnifiedNN where it was made."""
    spec: dict[str, object] = {}
    """The sub-model's entry of the spec."""
    techniques: tuple[str, ...] = ()
    """Ways in which it was trained in less memory: "compression, exact"."""
    snippet: str = ""
    """Lines of Python that load the network."""

    @property
    def findings(self) -> tuple[str, ...]:
        """A sentence for each thing that differs."""
        return tuple(one.text for one in self.compared if one.outcome == "differs")


class CertifyReport(BaseModel, frozen=True, extra="forbid"):
    """A certificate and the size of the zip, with it if it was put in; or what is wrong with the zip."""

    certificate: Certificate | None = None
    size_bytes: int = 0
    findings: tuple[Finding, ...] = ()


Job = InspectJob | SplitJob | SpecJob | OracleJob | CertifyJob
JOBS: TypeAdapter[Job] = TypeAdapter(Job)
