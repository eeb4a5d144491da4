"""Splits: one network of a spec that trains as several independent parts and is joined at the end. Pure.

`"split": {"at": ["5"]}` on the sub-model `mlp` says that it is cut behind its layer `5`. Where a spec is read it
becomes `mlp-1` and `mlp-2`, which know nothing of each other, and `mlp` itself, which waits for them and takes their
weights.
Each part trains on synthetic intermediate labels (Karadag and Topaloglu 2024): fixed random codes of the classes.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

from unifiednn_core.base.errors import Finding
from unifiednn_core.spec.choices import CLASSIFICATION
from unifiednn_core.spec.hyperparameters import Hyperparameters, at_learning_rate

SPLIT, PART = "split", "part"
MOST_PARTS = 8
RECOVERY_SHARE = 0.1
"""Learning rate of recovery epochs, as a share of that of the sub-model."""
_CODED = {"criterion": "mse"}
_OF_CLASSES = ("criterion_args", "class_weights")
_OF_TRAINING = ("lr_scheduler", "warm_up", "early_stopping")
_MOVING = ("mixup", "token_masking")


class SplitSpec(BaseModel):
    """How one network trains as independent parts."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, strict=True)

    at: Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1, max_length=MOST_PARTS - 1)]
    """Layers behind which it is cut, in the order of the network."""
    labels: Literal["codes", "outputs"] = "codes"
    """What a part behind a cut learns from: the codes of the classes, so that all parts train at once; or what the
    trained part before it puts out, which is stored once."""
    recovery_epochs: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """Epochs of the joined network, end to end, with a tenth of the learning rate; 0 delivers it as it was joined."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Seed of the codes."""
    scale: Annotated[float, Field(gt=0, le=1_000)] = 2.0
    """Size of an entry of a code."""
    code_rate: Annotated[float, Field(gt=0, le=10_000)] = 1.0
    """Learning rate of parts that learn codes, as a multiple of that of the sub-model. The mean over all entries of a
    code has small gradients: SGD needs about 8 at 512 entries, 16 at 1024; Adam and its kin need none."""
    noise: Annotated[float, Field(ge=0, le=10)] = 0.5
    """Standard deviation of what is added to codes as inputs in training, as a share of `scale`."""


def expanded(data: object, is_valid: Callable[[object], bool]) -> tuple[object, tuple[Finding, ...]]:
    """Return a spec whose split sub-models have their parts before them, and findings about splits.

    `is_valid` says whether a sub-model is valid. If it is not, or cannot be split, it stays as it is or loses its
    split, so that each mistake is reported once.
    """
    parts = data.get("submodels") if isinstance(data, Mapping) else None
    if not isinstance(data, Mapping) or not isinstance(parts, list | tuple):
        return data, ()
    known = {one.get("part_of") for one in parts if isinstance(one, Mapping)}
    findings: list[Finding] = []
    found: list[object] = []
    for one in parts:
        if not _asks(one) or one.get("name") in known or not is_valid(one):
            found.append(one)
        elif wrong := list(_wrong(one)):
            findings += wrong
            found.append({entry: value for entry, value in one.items() if entry != SPLIT})
        else:
            found += _members(one)
    return {**data, "submodels": found}, tuple(findings)


def require_parts(submodels: Iterable[Any]) -> None:
    """Raise a validation error for a split sub-model without its parts; `submodels` are those of a `RunSpec`."""
    submodels = tuple(submodels)
    names = {one.name for one in submodels}
    for one in submodels:
        message = ""
        if one.split is None and (one.part, one.part_of) != (None, None):
            message = "A part of a network needs the entry 'split', which says where it is cut."
        elif one.split is not None and one.part is not None and one.part > len(one.split.at) + 1:
            message = f"There are {len(one.split.at) + 1} parts. Choose one of them."
        elif not set(waits_for(one)) <= names:
            message = "The run has not all parts that it waits for. Submit the split network as one entry of a spec."
        if message:
            raise PydanticCustomError(
                "unknown_name", "{text}", {"text": message, "field": f"submodels.{one.name}.split"}
            )


def parts_of(name: str, split: SplitSpec) -> tuple[str, ...]:
    """Names of the parts of a network."""
    return tuple(f"{name}-{place}" for place in range(1, len(split.at) + 2))


def waits_for(submodel: Any) -> tuple[str, ...]:
    """Names of the sub-models of its run that have to be trained before a sub-model of a `RunSpec` begins."""
    if submodel.split is None:
        return ()
    if submodel.part is None:
        return parts_of(submodel.name, submodel.split)
    if submodel.split.labels == "codes" or submodel.part_of is None:
        return ()
    return parts_of(submodel.part_of, submodel.split)[: submodel.part - 1]


def in_one_piece(submodels: Iterable[Any]) -> tuple[Any, ...]:
    """Sub-models of a `RunSpec` as a baseline trains them: a split network end to end, and none of its parts.

    Its hyper-parameters are those that were given, which the last part has.
    """
    known = {one.name: one for one in submodels}

    def whole(one: Any) -> Any:
        last = known[parts_of(one.name, one.split)[-1]]
        return one.model_copy(update={"split": None, "hyperparameters": last.hyperparameters})

    return tuple(whole(one) if one.split is not None else one for one in known.values() if one.part is None)


def split_in(spec: Mapping[str, Any]) -> dict[str, int | None]:
    """Split networks of a stored spec and their parts, by name: which part of its network it is, None for a network."""
    return {str(one.get("name")): one.get(PART) for one in spec.get("submodels", ()) if one.get(SPLIT) is not None}


def _asks(one: object) -> bool:
    return isinstance(one, Mapping) and one.get(SPLIT) is not None and one.get(PART) is None


def _members(one: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The parts of a network, and the network itself."""
    split, hyper = SplitSpec.model_validate(one[SPLIT]), dict(one.get("hyperparameters") or {})
    names = parts_of(str(one["name"]), split)
    coded = {entry: value for entry, value in hyper.items() if entry not in _OF_CLASSES} | _CODED
    if split.code_rate != 1.0:
        now = Hyperparameters.model_validate(hyper)
        coded |= at_learning_rate(now, split.code_rate * now.learning_rate)
    stopping = coded.get("early_stopping")
    if isinstance(stopping, Mapping) and stopping.get("metric") == "test_accuracy":
        coded["early_stopping"] = {**stopping, "metric": "test_loss"}
    parts = [
        {
            **one,
            "name": name,
            PART: place,
            "part_of": one["name"],
            "hyperparameters": hyper if place == len(names) else coded,
        }
        for place, name in enumerate(names, start=1)
    ]
    recovery = {entry: value for entry, value in hyper.items() if entry not in _OF_TRAINING}
    recovery["epochs"] = max(1, split.recovery_epochs)
    recovery["learning_rate"] = RECOVERY_SHARE * hyper.get("learning_rate", 0.01)
    return [*parts, {**one, "hyperparameters": recovery}]


def _wrong(one: Mapping[str, Any]) -> Iterable[Finding]:
    """Why a network cannot be split, as far as its spec says so."""
    hyper = one.get("hyperparameters") or {}
    criterion = hyper.get("criterion", "cross_entropy")
    if criterion not in CLASSIFICATION:
        message = f"Synthetic labels are codes of classes, and {criterion} has no classes."
        yield _finding(one, "Train it in one piece, or choose cross_entropy for class numbers.", message)
    if one.get("targets", "stored") != "stored" or one.get("classes", "second") != "second":
        message = "Synthetic labels are codes of classes, one class for each sample; this is a language model or an "
        message += "autoencoder."
        yield _finding(one, "Train it in one piece.", message)
    entries = ("auxiliary", "output", "inputs", "start_from")
    if entry := next((entry for entry in entries if one.get(entry)), None):
        message = "A network that is split has one input and one output, and begins with the weights of its file; "
        yield _finding(one, f"Remove '{entry}', or train it in one piece.", f"{message}'{entry}' says otherwise.")
    if hyper.get("parameter_groups"):
        message = "Parameter groups name parameters of the whole network, and each part has only some of them."
        yield _finding(one, "Remove the parameter groups, or train it in one piece.", message)
    for given in one.get("transforms") or ():
        name = given.get("name") if isinstance(given, Mapping) else given
        if name in _MOVING:
            message = f"The transform {name} changes the classes of samples, and each code stands for one class."
            yield _finding(one, f"Remove {name}, or train it in one piece.", message)


def _finding(one: Mapping[str, Any], remedy: str, message: str) -> Finding:
    return Finding(title="Split", field=f"submodels.{one['name']}.{SPLIT}", message=message, remedy=remedy)
