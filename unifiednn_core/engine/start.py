"""Training that starts from a checkpoint, or from the weights of another file."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from unifiednn_core.base.errors import BadCheckpoint, BadInput, Finding
from unifiednn_core.engine import checkpoint_file
from unifiednn_core.engine.checkpoint import Checkpoint
from unifiednn_core.formats import registry, tensor_files
from unifiednn_core.formats.base import Definition
from unifiednn_core.spec.run import Hyperparameters, SubModelSpec

CHECKPOINT_FORMAT = "unifiednn-checkpoint"
NAMED_PER_FINDING = 3
CUDA_RNG_BYTES = 16  # seed and offset
_WEIGHTS_ONLY = 'Set "take" to "weights": training then starts anew from the weights in the file.'


def initial_state(path: Path, take: str) -> Checkpoint | dict[str, Tensor]:
    """Read what a training begins with: the whole checkpoint for "everything", the state dict for "weights".

    Raises `BadCheckpoint` for a checkpoint that cannot be used, `BadInput` or `HostileFile` for any other such file.
    """
    if take == "everything":
        return checkpoint_file.read(path)
    if checkpoint_file.looks_like_one(path):
        return checkpoint_file.read_weights(path)
    known = registry.sniff(path)
    if known is None:
        raise BadInput.of(
            "Unknown kind of file",
            field=path.name,
            message="No format knows this file.",
            remedy="Weights are read from checkpoints, .safetensors, .pt, .pth and .pt2.",
        )
    return known.read_state_dict(path)


def checkpoint_facts(path: Path) -> dict[str, object]:
    """Verify a checkpoint and return its facts; raises `BadInput`, which says what can still be used."""
    with _usable(path):
        checkpoint = checkpoint_file.read(path)
    weights, recipe = checkpoint.state.get("model"), checkpoint.recipe
    tensors = [tensor for tensor in weights.values() if isinstance(tensor, Tensor)] if isinstance(weights, dict) else []
    lr_scheduler = recipe.get("lr_scheduler")
    return {
        "submodel": checkpoint.submodel,
        "step": checkpoint.step,
        "epoch": checkpoint.epoch,
        "elements": sum(tensor.numel() for tensor in tensors),
        "weights_bytes": sum(tensor.nbytes for tensor in tensors),
        "optimizer": recipe.get("optimizer"),
        "lr_scheduler": lr_scheduler.get("name") if isinstance(lr_scheduler, dict) else None,
        "torch": recipe.get("torch"),
    }


def check_start(submodel: SubModelSpec, definition: Definition, samples: int, path: Path) -> list[Finding]:
    """Check the start of a sub-model against its network, its hyper-parameters and its number of training samples.

    Raises `BadInput` for a file that cannot be read at all.
    """
    start, place = submodel.start_from, f"submodels.{submodel.name}.start_from"
    if start is None:
        return []
    if start.take == "everything" and not checkpoint_file.looks_like_one(path):
        message = "The file is not a checkpoint of UnifiedNN: it holds no optimizer, RNG or data order."
        return [_finding("Not a checkpoint", f"{place}.take", message, _WEIGHTS_ONLY)]
    with _usable(path):
        state = initial_state(path, start.take)
    checkpoint = state if isinstance(state, Checkpoint) else None
    weights = state if checkpoint is None else checkpoint.state.get("model")
    with torch.random.fork_rng(devices=[]):
        module = definition.build()
    misfits = _misfits(weights, module.state_dict())
    if misfits:
        message = f"The weights of the file do not fit the network: {'; '.join(misfits)}."
        remedy = "Give a file of the same network, or the network that the file was trained with."
        return [_finding("Weights do not fit", f"{place}.file", message, remedy)]
    if checkpoint is None:
        return []
    damage = _damage(checkpoint, [parameter.shape for parameter in module.parameters()])
    if damage is not None:
        return [_finding("Checkpoint damaged", f"{place}.file", f"{damage}.", _WEIGHTS_ONLY)]
    return list(_recipe_findings(checkpoint, submodel.hyperparameters, samples, place))


@contextmanager
def _usable(path: Path) -> Iterator[None]:
    """Turn `BadCheckpoint` into `BadInput` with a remedy: what of the file can still be used."""
    try:
        yield
    except BadCheckpoint as error:
        message = f"This checkpoint {str(error).removeprefix(f'{path.name} ')}"
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


def _misfits(given: object, expected: Mapping[str, Tensor]) -> list[str]:
    """Reasons why a state dict does not fill `expected`, one phrase each."""
    if not isinstance(given, Mapping):
        return ["it holds no state dict"]
    groups = {
        "missing": [f"'{name}'" for name in expected if name not in given],
        "unexpected": [f"'{str(name)[:60]}'" for name in given if name not in expected],
        "of another shape or type": [
            f"'{name}' is {_kind(given[name])}, not {_kind(tensor)}"
            for name, tensor in expected.items()
            if name in given and _kind(given[name]) != _kind(tensor)
        ],
    }
    return [f"{what} {_some(names)}" for what, names in groups.items() if names]


def _damage(checkpoint: Checkpoint, shapes: Sequence[torch.Size]) -> str | None:
    """Why no run can have written this state, or None. On a GPU one wrong index would end all trainings."""
    try:
        order, cursor = _data_of(checkpoint)
        generator = torch.Generator()
        for state in (checkpoint.state["data"]["generator"], checkpoint.state["rng"]["cpu"]):
            generator.set_state(state)
        rate, _ = checkpoint.recipe["learning_rate"], dict(checkpoint.recipe["lr_scheduler"] or {})
        cuda = checkpoint.state["rng"]["cuda"]
        if cuda is not None and (cuda.dtype, tuple(cuda.shape)) != (torch.uint8, (CUDA_RNG_BYTES,)):
            return "Its RNG state of the GPU is invalid"
        indices = torch.arange(0 if order is None else len(order))  # int64, as the order must be
        if not (order is None or (order.dtype is indices.dtype and torch.equal(order.sort().values, indices))):
            return "Its data order is not a permutation of the samples"
        if type(cursor) is not int or not 0 <= cursor <= len(indices):
            return "Its data order is not a permutation of the samples"
        if not (isinstance(rate, float | int) and math.isfinite(rate) and rate > 0):
            return "Its learning rate is not a positive number"
        optimizer = checkpoint.state["optimizer"]
        if [index for group in optimizer["param_groups"] for index in group["params"]] != list(range(len(shapes))):
            return "Its optimizer has another number of parameters than the network"
        for index, entries in optimizer["state"].items():
            if not all(_fits(entry, shapes[index]) for entry in entries.values()):
                return "Its optimizer belongs to parameters of other shapes"
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError, IndexError):
        return "A part of it is missing, or is of another kind than UnifiedNN writes"
    return None


def _recipe_findings(checkpoint: Checkpoint, asked: Hyperparameters, samples: int, place: str) -> Iterator[Finding]:
    """Findings on differences between checkpoint and spec: errors if training cannot resume, else warnings."""
    take, recipe, wanted = f"{place}.take", checkpoint.recipe, asked.model_dump(mode="json")
    had_lr, wanted_lr = recipe.get("lr_scheduler") or {}, wanted["lr_scheduler"] or {}
    parts = (
        ("optimizer", recipe.get("optimizer"), wanted["optimizer"], "optimizer_args", recipe, wanted),
        ("LR scheduler", had_lr.get("name"), wanted_lr.get("name"), "args", had_lr, wanted_lr),
    )
    for what, had, wants, args, of_checkpoint, of_spec in parts:
        had_args, wanted_args = of_checkpoint.get(args), of_spec.get(args)
        if had != wants:
            message = f"The checkpoint was trained with {_named(what, had)}, the spec asks for {_named(what, wants)}."
            yield _finding(f"Another {what}", take, message, f"Ask for {_named(what, had)}. Or: {_WEIGHTS_ONLY}")
        elif had_args != wanted_args:
            message = f"The {what} keeps the checkpoint's arguments, {had_args}; the spec has {wanted_args}."
            remedy = f"Put the checkpoint's arguments into the spec. Or: {_WEIGHTS_ONLY}"
            yield _finding(f"Arguments of the {what}", take, message, remedy, severity="warning")
    order, cursor = _data_of(checkpoint)
    inside = (
        ()
        if order is None
        else (
            ("training samples", len(order), samples, "Give the same data"),
            ("samples in a batch", recipe.get("batch_size"), asked.batch_size, "Set the same batch size"),
            (
                "batches in a step",
                recipe.get("accumulation_steps", 1),
                asked.accumulation_steps,
                "Set the same accumulation_steps",
            ),
        )
    )
    for what, had, has, remedy in inside:
        if had != has:
            position = f"The checkpoint is inside epoch {checkpoint.epoch + 1}, {cursor} samples in"
            message = f"{position}, with {had} {what}; the spec has {has}."
            yield _finding(f"Another number of {what}", take, message, f"{remedy}. Or: {_WEIGHTS_ONLY}")
    if asked.epochs <= checkpoint.epoch:
        message = f"The checkpoint has done {checkpoint.epoch} epochs, the spec asks for {asked.epochs} in all."
        yield _finding("Nothing left to train", take, message, f"Ask for more epochs. Or: {_WEIGHTS_ONLY}")
    if recipe.get("torch") != str(torch.__version__):
        message = f"The checkpoint was written with torch {recipe.get('torch')}, this is {torch.__version__}."
        remedy = "Training can resume, but only one version of torch promises equal bits."
        yield _finding("Another torch", f"{place}.file", message, remedy, severity="warning")


def _fits(entry: object, shape: torch.Size) -> bool:
    """Whether an optimizer entry can belong to a parameter: a scalar, its shape, or a row or column of it."""
    if not isinstance(entry, Tensor) or entry.shape == ():
        return True
    same_rank = len(entry.shape) == len(shape)
    return same_rank and all(own in (1, size) for own, size in zip(entry.shape, shape, strict=True))


def _data_of(checkpoint: Checkpoint) -> tuple[Tensor | None, Any]:
    """Permutation of the current epoch, None between epochs, and the number of its samples already used."""
    data = checkpoint.state["data"]
    return data["order"], data["cursor"]


def _named(what: str, name: object) -> str:
    return f"no {what}" if name is None else f"the {what} '{name}'"


def _kind(value: object) -> str:
    if not isinstance(value, Tensor):
        return f"a {type(value).__name__}"
    return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"


def _some(names: list[str]) -> str:
    more = len(names) - NAMED_PER_FINDING
    return ", ".join(names[:NAMED_PER_FINDING]) + (f" and {more} more" if more > 0 else "")


def _finding(
    title: str, field: str, message: str, remedy: str, severity: Literal["error", "warning"] = "error"
) -> Finding:
    return Finding(severity=severity, title=title, field=field, message=message, remedy=remedy)
