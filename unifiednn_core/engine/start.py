"""Training that starts from a checkpoint, or from the weights of another file."""

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from unifiednn_core.base.errors import BadCheckpoint, BadInput, Finding
from unifiednn_core.engine import checkpoint_file, kinds
from unifiednn_core.engine.bounds import misfits, same
from unifiednn_core.engine.checkpoint import Checkpoint, fill
from unifiednn_core.engine.checkpoint_check import check, recipe_of
from unifiednn_core.formats import registry, tensor_files
from unifiednn_core.formats.base import Definition
from unifiednn_core.formats.state_dict import WeightsFormat, confirmed, fitted, other_names
from unifiednn_core.spec.choice import Choice, shown
from unifiednn_core.spec.choices import LR_SCHEDULES, OPTIMIZERS
from unifiednn_core.spec.hyperparameters import at_learning_rate
from unifiednn_core.spec.run import Hyperparameters, StartSpec, SubModelSpec

CHECKPOINT_FORMAT = "unifiednn-checkpoint"
# Entries of the hyper-parameters that decide what the steps of an epoch take.
_OF_AN_EPOCH = ("batch_size", "accumulation_steps", "drop_last", "sampler")
_ROUNDING = 1e-6
_WEIGHTS_ONLY = 'Set "take" to "weights": training then starts anew from the weights in the file.'


def initial_state(path: Path, take: str, entry: str | None = None) -> Checkpoint | dict[str, Tensor]:
    """Read what a training begins with: the whole checkpoint for "everything", the state dict for "weights".

    `entry` of the file's dict holds the weights, if it is given.

    Raises `BadCheckpoint` for a checkpoint that cannot be used, `BadInput` or `HostileFile` for any other such file.
    """
    if take == "everything":
        return checkpoint_file.read(path)
    if checkpoint_file.looks_like_one(path):
        return checkpoint_file.read_weights(path)
    known = registry.format_of(path)
    return (
        known.held(path, entry, "start_from").weights
        if isinstance(known, WeightsFormat)
        else known.read_state_dict(path)
    )


def checkpoint_facts(path: Path) -> dict[str, object]:
    """Verify a checkpoint and return its facts; raises `BadInput`, which says what can still be used."""
    with _usable(path):
        checkpoint = checkpoint_file.read(path)
        recipe = recipe_of(checkpoint)
    weights, hyper = checkpoint.state.get("model"), recipe.hyperparameters
    tensors = [tensor for tensor in weights.values() if isinstance(tensor, Tensor)] if isinstance(weights, dict) else []
    return {
        "submodel": checkpoint.submodel,
        "step": checkpoint.step,
        "epoch": checkpoint.epoch,
        "elements": sum(tensor.numel() for tensor in tensors),
        "weights_bytes": sum(tensor.nbytes for tensor in tensors),
        "optimizer": hyper.optimizer,
        "lr_scheduler": None if hyper.lr_scheduler is None else hyper.lr_scheduler.name,
        "torch": recipe.torch,
        "kinds": [kind.text for kind in recipe.kinds],
    }


def load_weights(module: nn.Module, weights: Mapping[str, Tensor], names: str | None = None) -> None:
    """Copy weights from elsewhere into a network; raises `BadCheckpoint`, and changes nothing, if they do not fit."""
    weights = fitted(weights, module.state_dict(), names)
    if found := misfits(weights, module.state_dict()):
        raise BadCheckpoint(f"The weights of the file do not fit the network: {'; '.join(found)}.")
    module.load_state_dict(weights)


def check_start(
    submodel: SubModelSpec, definition: Definition, samples: int, path: Path, device_type: str
) -> tuple[tuple[Finding, ...], Definition]:
    """Check the start of a sub-model against network, hyper-parameters, number of training samples and type of device.

    Returns warnings, and the definition of a network that begins with the file's weights. Raises `BadInput`.
    """
    start, place = submodel.start_from, f"submodels.{submodel.name}.start_from"
    if start is None:
        return (), definition
    if start.take == "everything" and not checkpoint_file.looks_like_one(path):
        message = "The file is not a checkpoint of UnifiedNN: it holds no optimizer, RNG or data order."
        raise BadInput([_finding("Not a checkpoint", f"{place}.take", message, _WEIGHTS_ONLY)])
    with _usable(path):
        state = initial_state(path, start.take, start.entry)
    checkpoint = state if isinstance(state, Checkpoint) else None
    weights: Any = state if checkpoint is None else checkpoint.state.get("model")
    with torch.random.fork_rng(devices=[]):
        module = definition.build()
    doubts: tuple[Finding, ...] = ()
    if checkpoint is None:
        weights, doubts = _fitted(path, start, weights, module.state_dict(), place)
    if found := misfits(weights, module.state_dict()):
        message = f"The weights of the file do not fit the network: {'; '.join(found)}."
        remedy = "Give a file of the same network, or the network that the file was trained with."
        raise BadInput([_finding("Weights do not fit", f"{place}.file", message, remedy)])
    tensor_files.check_numbers(path, weights)
    if checkpoint is None:
        return doubts, _begun(definition, weights, {})
    try:
        findings = tuple(_recipe_findings(checkpoint, submodel.hyperparameters, samples, place, device_type))
        if any(finding.severity == "error" for finding in findings):
            raise BadInput(findings)
        check(checkpoint, module, submodel.hyperparameters, samples)
        _check_numbers(checkpoint)
    except BadCheckpoint as error:
        raise BadInput([_finding("Checkpoint damaged", f"{place}.file", str(error), _WEIGHTS_ONLY)]) from None
    tensor_files.check_numbers(path, checkpoint.state["buffers"])
    return findings, _begun(definition, weights, checkpoint.state["buffers"])


def _fitted(
    path: Path, start: StartSpec, weights: dict[str, Tensor], expected: Mapping[str, Tensor], place: str
) -> tuple[dict[str, Tensor], tuple[Finding, ...]]:
    """The weights under the names of the network, if they fit, and warnings. Raises `BadInput` if a person must say."""
    known = None if checkpoint_file.looks_like_one(path) else registry.sniff(path)
    doubts = known.held(path, start.entry, place).doubts(place) if isinstance(known, WeightsFormat) else ()
    others = other_names(weights, expected, place)
    if others is not None:
        doubts += (confirmed(others) if start.names else others,)
    if any(finding.severity == "error" for finding in doubts):
        raise BadInput(doubts)
    return fitted(weights, expected, start.names), doubts


def _begun(definition: Definition, weights: Mapping[str, Tensor], buffers: Mapping[str, Tensor]) -> Definition:
    """The same network with other weights. Whole numbers among them may be indices, so the dry run has to see them."""

    def build() -> nn.Module:
        module = definition.build()
        fill(module, weights, buffers)
        return module

    return replace(definition, build=build)


def _check_numbers(checkpoint: Checkpoint) -> None:
    """Raise `BadCheckpoint` for numbers from which training cannot go on."""
    for index, entries in checkpoint.state["optimizer"]["state"].items():
        for name, tensor in entries.items():
            if tensor.numel() and not all(math.isfinite(end) for end in torch.stack(tensor.aminmax()).tolist()):
                place = f"optimizer.state.{index}.{name}"
                raise BadCheckpoint(f"The checkpoint has numbers in {place} that are NaN or infinite.")


@contextmanager
def _usable(path: Path) -> Iterator[None]:
    """Turn `BadCheckpoint` into `BadInput` with a remedy: what of the file can still be used."""
    try:
        yield
    except BadCheckpoint as error:
        message = f"This checkpoint {str(error).removeprefix(f'{path.name} ').removeprefix('The checkpoint ')}"
        raise BadInput.of("Checkpoint not usable", path.name, message, _still_usable(path)) from None


def _still_usable(path: Path) -> str:
    with suppress(BadCheckpoint):
        checkpoint_file.read_weights(path)
        return 'Its weights are intact: start with "take" = "weights", or read them with safetensors.'
    try:
        names = tensor_files.load_safetensors(path)
    except BadInput:
        return "Nothing in it can be read; use another checkpoint, or copy it again."
    readable = any(name.startswith(checkpoint_file.MODEL_PREFIX) for name in names)
    damaged = " Its weights can still be read with safetensors, but may be damaged too."
    return "Use another checkpoint." + (damaged if readable else "")


def _recipe_findings(
    checkpoint: Checkpoint, asked: Hyperparameters, samples: int, place: str, device_type: str
) -> Iterator[Finding]:
    """Findings on differences between checkpoint and spec: errors if training cannot resume, else warnings.

    Raises `BadCheckpoint` for a recipe that no run has written.
    """
    take, recipe = f"{place}.take", recipe_of(checkpoint)
    had = recipe.hyperparameters
    given = asked.model_dump(mode="json")
    scaled = had.model_dump(mode="json") | at_learning_rate(had, asked.learning_rate)  # other rates go with it
    had_lr, asked_lr = had.lr_scheduler, asked.lr_scheduler
    had_name, asked_name = (None if one is None else one.name for one in (had_lr, asked_lr))
    for what, its, wanted in (("optimizer", had.optimizer, asked.optimizer), ("LR scheduler", had_name, asked_name)):
        if its != wanted:
            message = f"The checkpoint was trained with {_named(what, its)}, the spec asks for {_named(what, wanted)}."
            yield _finding(f"Another {what}", take, message, f"Ask for {_named(what, its)}. Or: {_WEIGHTS_ONLY}")
    if had.optimizer == asked.optimizer:
        yield from _differences(
            "optimizer", OPTIMIZERS[asked.optimizer], had.optimizer_args, asked.optimizer_args, take
        )
    if had_lr is not None and asked_lr is not None and had_lr.name == asked_lr.name:
        own, wants = (
            {**one["args"], **{name: one[name] for name in ("per", "of", "milestones")}}
            for one in (scaled["lr_scheduler"], given["lr_scheduler"])
        )
        yield from _differences("LR scheduler", LR_SCHEDULES[asked_lr.name], own, wants, take)
    if not _alike(scaled["parameter_groups"], given["parameter_groups"]):
        message = "The parameter groups of the checkpoint are not those of the spec."
        remedy = f"Give parameter_groups = {json.dumps(scaled['parameter_groups'])}. Or: {_WEIGHTS_ONLY}"
        yield _finding("Other parameter groups", take, message, remedy)
    if had.ema != asked.ema:
        message = f"The checkpoint has ema = {shown(scaled['ema'])}, the spec has {shown(given['ema'])}."
        yield _finding(
            "Average of the weights", take, message, f"Ask for ema = {shown(scaled['ema'])}. Or: {_WEIGHTS_ONLY}"
        )
    if isinstance(state := checkpoint.state.get("data"), dict) and state.get("order") is not None:  # inside an epoch
        of_spec = ((name, scaled[name], given[name]) for name in _OF_AN_EPOCH)
        for what, inside, now in (("training samples", recipe.samples, samples), *of_spec):
            if inside != now:
                position = f"The checkpoint is inside epoch {checkpoint.epoch + 1}"
                message = f"{position}, with {what} = {inside}; the spec has {now}."
                yield _finding(f"Inside an epoch of other {what}", take, message, f"Give the same. Or: {_WEIGHTS_ONLY}")
    if asked.epochs <= checkpoint.epoch:
        message = f"The checkpoint has done {checkpoint.epoch} epochs, the spec asks for {asked.epochs} in all."
        yield _finding("Nothing left to train", take, message, f"Ask for more epochs. Or: {_WEIGHTS_ONLY}")
    if recipe.torch != str(torch.__version__):
        message = f"The checkpoint was written with torch {recipe.torch}, this is {torch.__version__}."
        remedy = "Training can resume, but only one version of torch promises equal bits."
        yield _finding("Another torch", f"{place}.file", message, remedy, severity="warning")
    here = kinds.expected_kind(device_type)
    if found := kinds.differences(replace(recipe.kinds[-1], torch=here.torch), here):
        remedy = "Training can resume, but only one kind of device promises equal bits; the result will name both."
        yield _finding("Another kind of device", f"{place}.file", " ".join(found), remedy, severity="warning")


def _differences(
    what: str, choice: Choice, had: Mapping[str, Any], asked: Mapping[str, Any], place: str
) -> Iterator[Finding]:
    """An error if arguments differ: the state goes with those of the checkpoint."""
    defaults = {argument.name: argument.default for argument in choice.arguments}
    its, wanted = {**defaults, **had}, {**defaults, **asked}
    names = [name for name in its if not _alike(its[name], wanted[name])]
    if names:
        needed, given = (", ".join(f"{name} = {shown(args[name])}" for name in names) for args in (its, wanted))
        message = f"The {what} of the checkpoint has {needed}; the spec has {given}."
        yield _finding(f"Arguments of the {what}", place, message, f"Ask for {needed}. Or: {_WEIGHTS_ONLY}")


def _alike(one: object, other: object) -> bool:
    """Whether two values are equal but for the rounding of numbers, as by a person who copies a rate."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=_ROUNDING)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_alike, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_alike(one[key], other[key]) for key in one)
    return same(one, other)


def _named(what: str, name: object) -> str:
    return f"no {what}" if name is None else f"the {what} '{name}'"


def _finding(
    title: str, field: str, message: str, remedy: str, severity: Literal["error", "warning"] = "error"
) -> Finding:
    return Finding(severity=severity, title=title, field=field, message=message, remedy=remedy)
