"""The run spec: a run, its sub-models and their hyper-parameters, to and from JSON.

`parse_run` turns every mistake into a finding that names the field and the remedy.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from unifiednn_core.base.errors import BadInput
from unifiednn_core.spec import split as splits
from unifiednn_core.spec import sweep
from unifiednn_core.spec.findings import finding_of
from unifiednn_core.spec.hyperparameters import EarlyStopping as EarlyStopping
from unifiednn_core.spec.hyperparameters import Hyperparameters as Hyperparameters
from unifiednn_core.spec.hyperparameters import LRSchedulerSpec as LRSchedulerSpec
from unifiednn_core.spec.placement import PlacementSpec, refuse_company, require_private
from unifiednn_core.spec.split import SplitSpec
from unifiednn_core.spec.transforms import TransformSpecs

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$"
DEFAULT_CHECKPOINT_PERIOD_S = 30.0
MOST_LANES = 8
MAX_SPEC_BYTES = 4 * 1024**2
TELLING = frozenset({"epochs", "batch_size", "optimizer", "learning_rate", "criterion"})
"""Entries that a file of hyper-parameters has, and that no description of a network has."""

Baseline = Literal["concurrent", "sequential"]
"""How plain PyTorch processes train the sub-models of a run: all at once, or one after another."""
Mode = Literal["hybrid", Baseline]
BASELINES: tuple[Baseline, ...] = ("concurrent", "sequential")


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


_AnyPart = TypeVar("_AnyPart", bound=BaseModel)


class PolicySpec(BaseModel):
    """Name of a policy and its own parameters: `{"name": "sjf", "by": "epochs"}`."""

    model_config = ConfigDict(frozen=True, extra="allow")

    name: str = "fcfs"

    @property
    def parameters(self) -> dict[str, Any]:
        """Everything except the name; the policy itself checks it."""
        return dict(self.model_extra or {})


class ArchitectureSpec(_Part):
    """A network of the architecture registry, for model files that hold only weights."""

    name: str
    args: dict[str, Any] = {}
    names: Literal["by_shape"] | None = None
    """`by_shape`: the file has other names; its weights are taken in order, by their shapes. A person confirms that."""
    entry: Annotated[str, Field(min_length=1)] | None = None
    """Entry of the file that holds the weights, if several could."""


class StartSpec(_Part):
    """Start of the training, instead of the weights of the model file."""

    file: Annotated[str, Field(min_length=1)]
    """A checkpoint; with `take` = "weights" also any file of weights."""
    take: Literal["everything", "weights"] = "everything"
    """Resume exactly, with optimizer, LR scheduler, RNG and data order; or start afresh with only the weights."""
    names: Literal["by_shape"] | None = None
    """As of an architecture: how names in the file meet those of the network."""
    entry: Annotated[str, Field(min_length=1)] | None = None
    """As of an architecture: entry of the file that holds the weights."""


SUBJECT = "sub:"
"""Prefix of the subject by which an identity provider names a person without an e-mail address."""


def person_id(name: str) -> str:
    """Id of a person: the e-mail address in lower case, or `sub:` and the unchanged subject."""
    plain = name.strip()
    return plain if plain.startswith(SUBJECT) else plain.lower()


PREPARED = {"scale", "mean", "std", "inputs", "transforms", "targets"}
"""Entries of a sub-model that decide, with its data, what its network gets."""
MEANING = PREPARED | {"output", "auxiliary", "classes"}
"""Entries of a sub-model that decide what a step means, up to its criterion."""
_Entry = Annotated[str, Field(min_length=1, max_length=200)]


class SubModelSpec(_Part):
    """A network, its data and its training. Paths are relative to the spec file."""

    name: Annotated[str, Field(pattern=NAME_PATTERN)]
    model: Annotated[str, Field(min_length=1)]
    """Model file."""
    architecture: ArchitectureSpec | None = None
    train_data: Annotated[str, Field(min_length=1)]
    """Data file to train on."""
    test_data: str | None = None
    """Data file for the evaluation after each epoch."""
    scale: float | None = None
    """Factor for integer inputs (1/255 for images); the resident copy stays uint8."""
    mean: float | None = None
    """Subtracted from scaled inputs."""
    std: Annotated[float, Field(gt=0)] | None = None
    """Divides them then."""
    inputs: dict[_Entry, _Entry] = {}
    """Input of the network: input of the data that it gets, where their names differ. `targets` names the targets."""
    transforms: TransformSpecs = ()
    """What happens to each batch after scaling, in order; random ones in training alone."""
    targets: Literal["stored", "inputs", "next"] = "stored"
    """Targets: those of the data; the scaled inputs (autoencoder); or the inputs' ids one place further, whose last
    place is then no input (language model)."""
    output: _Entry | None = None
    """Output of the network that the criterion gets; by default the first."""
    auxiliary: dict[_Entry, Annotated[float, Field(gt=0)]] = {}
    """Further outputs with the weights of their losses in training; same criterion, same targets."""
    classes: Literal["second", "last"] = "second"
    """Dimension of the outputs that holds the scores of classes. Language models return them last."""
    loading: Literal["auto", "resident", "streamed"] = "auto"
    """Whether its data lie on the device as a whole, or batches are read from the files ahead of their steps: the same
    order, so the same bits. `auto`: streamed if they take more than half of the memory."""
    priority: Annotated[int, Field(ge=-1_000_000, le=1_000_000)] = 0
    """Lower goes first."""
    deadline_s: Annotated[float, Field(gt=0)] | None = None
    """Seconds after its submission by which it should have ended; the policy "deadline" trains by it."""
    start_from: StartSpec | None = None
    sweep_of: Annotated[str, Field(pattern=NAME_PATTERN)] | None = None
    """Name of the sweep that it is a member of."""
    split: SplitSpec | None = None
    """Where the network is cut into parts that train by themselves, and are joined when they have ended."""
    part: Annotated[int, Field(ge=1, le=splits.MOST_PARTS)] | None = None
    """Which part of a split network this is, counted from 1; None for the network that is joined of them."""
    part_of: Annotated[str, Field(pattern=NAME_PATTERN)] | None = None
    """Name of the network that the part belongs to."""
    placement: PlacementSpec | None = None
    """Several devices for its network, each with a limit of memory."""
    owner: Annotated[str, Field(min_length=1, max_length=320)] | None = None
    """Owner of the sub-model, set by an operator; by default the owner of the model file."""
    hyperparameters: Hyperparameters = Hyperparameters()

    @model_validator(mode="after")
    def _may_be_placed(self) -> Self:
        refuse_company(self.placement, self.hyperparameters, split=self.split is not None)
        return self

    @property
    def joins(self) -> bool:
        """Whether it is a network that is joined of its parts."""
        return self.split is not None and self.part is None

    @property
    def epochs(self) -> int:
        """Epochs that it trains; none if it is joined of its parts without recovery."""
        return 0 if self.joins and self.split and not self.split.recovery_epochs else self.hyperparameters.epochs


class CheckpointSpec(_Part):
    """Seconds or steps of the run between two checkpoints; whichever passes first counts."""

    every_s: Annotated[float, Field(gt=0)] | None = None
    every_steps: Annotated[int, Field(ge=1)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _default(cls, data: Any) -> Any:
        """An empty object means every 30 s."""
        return {"every_s": DEFAULT_CHECKPOINT_PERIOD_S} if data == {} else data

    @model_validator(mode="after")
    def _some_period(self) -> Self:
        if self.every_s is None and self.every_steps is None:  # both are null
            message = "Without a period no checkpoint is written. Give every_s, every_steps, or both."
            raise PydanticCustomError("unknown_name", message)
        return self


class HybridSettings(_Part):
    """How a hybrid trains: of a private one a part of its spec, of shared ones the operator's choice."""

    policy: PolicySpec = PolicySpec()
    profile: Literal["exact", "fast"] = "exact"
    lanes: Literal["auto"] | Annotated[int, Field(ge=1, le=MOST_LANES)] = "auto"
    checkpoint: CheckpointSpec = CheckpointSpec()
    recovery: Literal["auto", "ask"] = "auto"
    step_limit_s: Annotated[float, Field(gt=0)] = 600.0


class RunSpec(_Part):
    """One hybrid model to train on one device."""

    name: Annotated[str, Field(min_length=1, max_length=100)] = "run"
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Seed of each sub-model that has none of its own."""
    device: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9 :._()/-]{0,127}$")] = "auto"
    """`auto` (a GPU where there is one), `cpu`, `cuda`, one device such as `cuda:1`, or a kind such as `H200`; with
    many hosts also one of them, `gpu-1`, or one before any of these, `gpu-1/cuda:1`."""
    hybrid: Literal["private", "shared"] = "private"
    """`private`: these sub-models alone, under this policy. `shared`: with those of others, in hybrids whose policy,
    lanes and checkpoints the operator sets."""
    moves: Literal["same", "any"] = "same"
    """Devices on which it may go on after a move: those of the same kind, which gives the same bits, or any."""
    profile: Literal["exact", "fast"] = "exact"
    """`exact` gives the bits of the plain loop. `fast` rounds differently: equal networks may train fused, on a GPU
    products use TF32, images have their channels last, optimizers are fused, and `precision` may be lower. Baselines
    then do likewise."""
    threads: Annotated[int, Field(ge=1, le=1024)] | None = None
    """CPU threads per step; equal bits need equal threads. Default: all cores but one."""
    lanes: Literal["auto"] | Annotated[int, Field(ge=1, le=MOST_LANES)] = "auto"
    """Most sub-models that step at once; they do while memory and measured progress allow it. No bits depend on it."""
    policy: PolicySpec = PolicySpec()
    checkpoint: CheckpointSpec = CheckpointSpec()
    recovery: Literal["auto", "ask"] = "auto"
    """Whether a run resumes by itself after its worker died, or waits for a person."""
    memory_limit_bytes: Annotated[int, Field(ge=1)] | None = None
    """Upper limit of memory on the device; by default all of the device."""
    step_limit_s: Annotated[float, Field(gt=0)] = 600.0
    """A longer step counts as stuck: its sub-model fails, the others continue."""
    submodels: tuple[SubModelSpec, ...]

    @model_validator(mode="after")
    def _some_with_distinct_names(self) -> Self:
        if not self.submodels:
            message = "A run needs a sub-model. Add at least one."
            raise PydanticCustomError("duplicate_name", message, {"field": "submodels"})
        seen: set[str] = set()
        for submodel in self.submodels:
            if submodel.name.lower() in seen:
                context = {"name": submodel.name, "field": f"submodels.{submodel.name}.name"}
                message = "Two sub-models are called '{name}'. Give each its own name."
                raise PydanticCustomError("duplicate_name", message, context)
            seen.add(submodel.name.lower())
        return self

    @model_validator(mode="after")
    def _precision_of_profile(self) -> Self:
        for submodel in self.submodels:
            precision = submodel.hyperparameters.precision
            if precision != "float32" and self.profile == "exact":
                context = {"precision": precision, "field": f"submodels.{submodel.name}.hyperparameters.precision"}
                message = "{precision} has other bits than the profile exact promises. "
                message += 'Set "profile" to "fast", or precision to float32.'
                raise PydanticCustomError("unknown_name", message, context)
        return self

    @model_validator(mode="after")
    def _parts_of_splits(self) -> Self:
        splits.require_parts(self.submodels)
        require_private(self.submodels, self.hybrid)
        return self

    def seed_of(self, submodel: SubModelSpec) -> int:
        """Seed of the sub-model's RNG and data order."""
        own = submodel.hyperparameters.seed
        return self.seed if own is None else own

    def seeded(self) -> tuple[SubModelSpec, ...]:
        """Its sub-models, each with its own seed, so that they are the same in another run."""
        return tuple(
            part.model_copy(
                update={"hyperparameters": part.hyperparameters.model_copy(update={"seed": self.seed_of(part)})}
            )
            for part in self.submodels
        )

    def to_json(self) -> str:
        """Serialise to JSON; `parse_run` reads it back to an equal spec."""
        return self.model_dump_json(indent=2, exclude_none=True)


def parse_run(data: object) -> RunSpec:
    """Read a run from parsed JSON, with sweeps replaced by their members, and split networks by their parts.

    Raises `BadInput` with one finding per mistake.
    """
    data, findings = sweep.expanded(data, _is_submodel)
    data, more = splits.expanded(data, _is_submodel)
    findings += more
    try:
        spec = _parsed(RunSpec, data)
    except BadInput as error:
        raise BadInput((*findings, *error.findings)) from None
    if findings:
        raise BadInput(findings)
    return spec


def parse_hyperparameters(data: object) -> Hyperparameters:
    """Read a hyper-parameter file. Raises `BadInput` with one finding per mistake."""
    return _parsed(Hyperparameters, data)


def load_run(path: Path) -> RunSpec:
    """Read a spec file. Raises `BadInput` if it is missing, not JSON, or invalid."""
    return parse_run(load_json(path))


def load_json(path: Path) -> object:
    """Read the JSON of a spec file. Raises `BadInput` if it is missing, too large, or not JSON."""
    try:
        size_bytes = path.stat().st_size
        text = path.read_text(encoding="utf-8") if size_bytes <= MAX_SPEC_BYTES else ""
    except (OSError, UnicodeDecodeError) as error:
        reason = "it is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else error.strerror
        remedy = "Give the path of a JSON file such as sample_models/demo.json."
        raise BadInput.of("Spec not readable", str(path), f"The spec cannot be read: {reason}.", remedy) from None
    if size_bytes > MAX_SPEC_BYTES:
        remedy = f"A spec is a small JSON file; at most {MAX_SPEC_BYTES} bytes are read."
        raise BadInput.of("Spec too large", str(path), f"The spec has {size_bytes} bytes.", remedy)
    return parse_json(text, field=str(path))


def parse_json(text: str, *, field: str) -> object:
    """Parse JSON. Raises `BadInput` with line and column of the first mistake."""
    try:
        return json.loads(text, object_pairs_hook=lambda pairs: _each_once(pairs, field))
    except (json.JSONDecodeError, RecursionError) as error:
        where = f"line {error.lineno}, column {error.colno}: {error.msg}" if isinstance(error, ValueError) else "depth"
        raise BadInput.of("Not JSON", field, f"This is not JSON ({where}).", "Correct the JSON there.") from None


def document_kind(document: object) -> Literal["spec", "hyperparameters", ""]:
    """Whether a document is a spec or hyper-parameters, perhaps with mistakes; "" for anything else."""
    if not isinstance(document, Mapping):
        return ""
    if isinstance(document.get("submodels"), list):
        return "spec"
    return "hyperparameters" if TELLING & document.keys() & set(Hyperparameters.model_fields) else ""


def document_of(text: bytes, filename: str) -> dict[str, Any] | None:
    """The spec or the hyper-parameters in a file; None if it holds anything else, such as a network in JSON."""
    try:
        document = parse_json(text.decode("utf-8"), field=filename)
    except (BadInput, ValueError):  # whoever reads models tells what is wrong
        return None
    return document if isinstance(document, dict) and document_kind(document) else None


def _each_once(pairs: list[tuple[str, object]], field: str) -> dict[str, object]:
    """Build a JSON object. Raises `BadInput` for a repeated entry, which would silently replace the first."""
    found: dict[str, object] = {}
    for name, value in pairs:
        if name in found:
            message = f"The entry '{name[:60]}' occurs twice in one object."
            raise BadInput.of("Given twice", field, message, "Keep one of them.")
        found[name] = value
    return found


def _is_submodel(data: object) -> bool:
    try:
        SubModelSpec.model_validate(data)
    except ValidationError:
        return False
    return True


def _parsed(part: type[_AnyPart], data: object) -> _AnyPart:
    try:
        return part.model_validate(data)
    except ValidationError as error:
        entries = {entry for one in (part, SubModelSpec, Hyperparameters) for entry in one.model_fields}
        raise BadInput([finding_of(detail, data, entries) for detail in error.errors()]) from None
