"""What can be asked for: a run, its sub-models and their hyper-parameters, as JSON in and out.

`parse_run` is the way in: it turns every mistake into a finding that names the field and the remedy.
"""

import json
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from unifiednn_core.errors import BadInput
from unifiednn_core.hyperparameters import EarlyStopping as EarlyStopping
from unifiednn_core.hyperparameters import GradientClipping as GradientClipping
from unifiednn_core.hyperparameters import Hyperparameters as Hyperparameters
from unifiednn_core.hyperparameters import LRSchedulerSpec as LRSchedulerSpec
from unifiednn_core.hyperparameters import WarmUp as WarmUp
from unifiednn_core.spec_findings import finding_of

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$"
DEFAULT_CHECKPOINT_PERIOD_S = 30.0
MAX_SPEC_BYTES = 4 * 1024**2


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


_AnyPart = TypeVar("_AnyPart", bound=BaseModel)


class PolicySpec(BaseModel):
    """Name of a policy and, beside it, the policy's own parameters: `{"name": "sjf", "by": "epochs"}`."""

    model_config = ConfigDict(frozen=True, extra="allow")

    name: str = "fcfs"

    @property
    def parameters(self) -> dict[str, Any]:
        """Everything beside the name; the policy itself checks it."""
        return dict(self.model_extra or {})


class ArchitectureSpec(_Part):
    """A network of the architecture registry, for model files that hold weights alone."""

    name: str
    args: dict[str, Any] = {}


class StartSpec(_Part):
    """Where a training begins instead of at the weights of the model file."""

    file: Annotated[str, Field(min_length=1)]
    """A checkpoint, or with `take` = "weights" also a file of weights from elsewhere."""
    take: Literal["everything", "weights"] = "everything"
    """Go on exactly there, with optimizer, LR scheduler, RNG and data order; or start anew with the weights alone."""


SUBJECT = "sub:"
"""Before the subject that an identity provider gives to a person of whom it tells no e-mail address."""


def person_id(name: str) -> str:
    """What a person is known by: an e-mail address in lower case, or `sub:` and the subject as it is."""
    plain = name.strip()
    return plain if plain.startswith(SUBJECT) else plain.lower()


class SubModelSpec(_Part):
    """One submitted network, its data and how it is trained. Paths are relative to the spec file."""

    name: Annotated[str, Field(pattern=NAME_PATTERN)]
    model: Annotated[str, Field(min_length=1)]
    architecture: ArchitectureSpec | None = None
    train_data: Annotated[str, Field(min_length=1)]
    test_data: str | None = None
    scale: float | None = None
    """Factor for integer inputs, so that the resident copy can stay uint8 (1/255 for images)."""
    mean: float | None = None
    std: Annotated[float, Field(gt=0)] | None = None
    priority: Annotated[int, Field(ge=-1_000_000, le=1_000_000)] = 0
    """Lower goes first."""
    start_from: StartSpec | None = None
    owner: Annotated[str, Field(min_length=1, max_length=320)] | None = None
    """Whose it is, which an operator may say; without one the person to whom the model file belongs."""
    hyperparameters: Hyperparameters = Hyperparameters()


class CheckpointSpec(_Part):
    """How often progress is kept: after so many seconds or steps of the run, whichever comes first."""

    every_s: Annotated[float, Field(gt=0)] | None = None
    every_steps: Annotated[int, Field(ge=1)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _default(cls, data: Any) -> Any:
        """Nothing said is every 30 s."""
        return {"every_s": DEFAULT_CHECKPOINT_PERIOD_S} if data == {} else data

    @model_validator(mode="after")
    def _some_period(self) -> Self:
        if self.every_s is None and self.every_steps is None:  # both were set to null
            raise PydanticCustomError(
                "unknown_name", "Without a period nothing is kept. Give every_s, every_steps, or both.", {}
            )
        return self


class RunSpec(_Part):
    """One hybrid model to be trained on one device."""

    name: Annotated[str, Field(min_length=1, max_length=100)] = "run"
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    device: Annotated[str, Field(pattern=r"^(auto|cpu|cuda(:\d+)?)$")] = "auto"
    profile: Literal["exact"] = "exact"
    threads: Annotated[int, Field(ge=1, le=1024)] | None = None
    """CPU threads of one step; equal bits need equal threads. Without one: all cores but one."""
    policy: PolicySpec = PolicySpec()
    checkpoint: CheckpointSpec = CheckpointSpec()
    recovery: Literal["auto", "ask"] = "auto"
    """Whether a run whose worker died goes on by itself, or waits until somebody resumes it."""
    memory_limit_bytes: Annotated[int, Field(ge=1)] | None = None
    """Most memory that the run may take on its device; without a limit, what the device has."""
    step_limit_s: Annotated[float, Field(gt=0)] = 600.0
    """A step that takes longer is taken for endless: its sub-model fails, the others go on."""
    submodels: tuple[SubModelSpec, ...]

    @model_validator(mode="after")
    def _some_with_distinct_names(self) -> Self:
        if not self.submodels:
            raise PydanticCustomError(
                "duplicate_name", "There is no sub-model to train. Add at least one.", {"field": "submodels"}
            )
        seen: set[str] = set()
        for submodel in self.submodels:
            if submodel.name.lower() in seen:
                raise PydanticCustomError(
                    "duplicate_name",
                    "Two sub-models are called '{name}'. Give each its own name.",
                    {"name": submodel.name, "field": f"submodels.{submodel.name}.name"},
                )
            seen.add(submodel.name.lower())
        return self

    def seed_of(self, submodel: SubModelSpec) -> int:
        """Seed that the sub-model's RNG and data order start from."""
        own = submodel.hyperparameters.seed
        return self.seed if own is None else own

    def to_json(self) -> str:
        """Spec as JSON; `parse_run` reads it back to an equal one."""
        return self.model_dump_json(indent=2, exclude_none=True)


def parse_run(data: object) -> RunSpec:
    """Read a run from parsed JSON; raises `BadInput` with one finding for each mistake."""
    return _parsed(RunSpec, data)


def parse_hyperparameters(data: object) -> Hyperparameters:
    """Read a hyper-parameter file; raises `BadInput` with one finding for each mistake."""
    return _parsed(Hyperparameters, data)


def load_run(path: Path) -> RunSpec:
    """Read a spec file; raises `BadInput` where it is missing, no JSON, or asks for what cannot be done."""
    try:
        size_bytes = path.stat().st_size
        text = path.read_text(encoding="utf-8") if size_bytes <= MAX_SPEC_BYTES else ""
    except (OSError, UnicodeDecodeError) as error:
        reason = "it is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else error.strerror
        raise BadInput.of(
            "Spec not readable",
            field=str(path),
            message=f"The spec cannot be read: {reason}.",
            remedy="Give the path of a JSON file such as sample_models/demo.json.",
        ) from None
    if size_bytes > MAX_SPEC_BYTES:
        raise BadInput.of(
            "Spec too large",
            field=str(path),
            message=f"The spec has {size_bytes} bytes.",
            remedy=f"A spec is a small JSON file; at most {MAX_SPEC_BYTES} bytes are read.",
        )
    return parse_run(parse_json(text, field=str(path)))


def parse_json(text: str, *, field: str) -> object:
    """Parse JSON; raises `BadInput` with line and column of the first mistake."""
    try:
        return json.loads(text, object_pairs_hook=lambda pairs: _each_once(pairs, field))
    except (json.JSONDecodeError, RecursionError) as error:
        where = f"line {error.lineno}, column {error.colno}: {error.msg}" if isinstance(error, ValueError) else "depth"
        raise BadInput.of(
            "Not JSON", field=field, message=f"This is not JSON ({where}).", remedy="Correct the JSON there."
        ) from None


def _each_once(pairs: list[tuple[str, object]], field: str) -> dict[str, object]:
    """An object of JSON; raises `BadInput` where an entry stands twice, of which one would be lost."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        message = f"The entry '{twice[:60]}' stands twice in one object."
        raise BadInput.of("Given twice", field=field, message=message, remedy="Keep the one that is meant.")
    return found


def _parsed(part: type[_AnyPart], data: object) -> _AnyPart:
    try:
        return part.model_validate(data)
    except ValidationError as error:
        raise BadInput([finding_of(detail, data) for detail in error.errors()]) from None
