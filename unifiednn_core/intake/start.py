"""Where a training begins instead of at its model file: at a checkpoint, or at weights from elsewhere."""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from unifiednn_core.checkpoints import file as checkpoint_file
from unifiednn_core.checkpoints.checkpoint import Checkpoint
from unifiednn_core.errors import BadCheckpoint, BadInput, Finding
from unifiednn_core.intake import registry, tensor_files
from unifiednn_core.intake.base import Definition
from unifiednn_core.spec import Hyperparameters, SubModelSpec

CHECKPOINT_FORMAT = "unifiednn-checkpoint"
NAMED_PER_FINDING = 3
CUDA_RNG_BYTES = 16  # seed and offset
_WEIGHTS_ALONE = 'Set "take" to "weights", which starts anew with the weights of the file.'


def initial_state(path: Path, take: str) -> Checkpoint | dict[str, Tensor]:
    """What a training begins with: the whole checkpoint for "everything", the network's state dict for "weights".

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
    """Facts of a checkpoint, all of which is verified; raises `BadInput` that says what still is possible."""
    try:
        checkpoint = checkpoint_file.read(path)
    except BadCheckpoint as error:
        raise _unusable(path, error) from None
    weights = checkpoint.state.get("model")
    tensors = [tensor for tensor in weights.values() if isinstance(tensor, Tensor)] if isinstance(weights, dict) else []
    lr_scheduler = checkpoint.recipe.get("lr_scheduler")
    return {
        "submodel": checkpoint.submodel,
        "step": checkpoint.step,
        "epoch": checkpoint.epoch,
        "elements": sum(tensor.numel() for tensor in tensors),
        "weights_bytes": sum(tensor.nbytes for tensor in tensors),
        "optimizer": checkpoint.recipe.get("optimizer"),
        "lr_scheduler": lr_scheduler.get("name") if isinstance(lr_scheduler, dict) else None,
        "torch": checkpoint.recipe.get("torch"),
    }


def check_start(submodel: SubModelSpec, definition: Definition, samples: int, path: Path) -> list[Finding]:
    """Hold a start against the network, its hyper-parameters and the number of its training samples.

    Raises `BadInput` where the file cannot be read at all.
    """
    start, place = submodel.start_from, f"submodels.{submodel.name}.start_from"
    if start is None:
        return []
    if start.take == "everything" and not checkpoint_file.looks_like_one(path):
        message = "The file is not a checkpoint of UnifiedNN, so that it holds no optimizer, RNG or data order."
        return [_finding("Not a checkpoint", f"{place}.take", message, _WEIGHTS_ALONE)]
    try:
        state = initial_state(path, start.take)
    except BadCheckpoint as error:
        raise _unusable(path, error) from None
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
    damage = _damage(checkpoint, [tuple(parameter.shape) for parameter in module.parameters()])
    if damage is not None:
        return [_finding("Checkpoint damaged", f"{place}.file", f"{damage}.", _WEIGHTS_ALONE)]
    return list(_recipe_findings(checkpoint, submodel.hyperparameters, samples, place))


def _unusable(path: Path, error: BadCheckpoint) -> BadInput:
    """Finding that says what is wrong with a checkpoint, and what still is possible with it."""
    reason = str(error).removeprefix(f"{path.name} ")
    return BadInput.of(
        "Checkpoint not usable", field=path.name, message=f"This checkpoint {reason}", remedy=_still_possible(path)
    )


def _still_possible(path: Path) -> str:
    try:
        checkpoint_file.read_weights(path)
    except BadCheckpoint:
        pass
    else:
        return 'Its weights are whole: start with "take" = "weights", or read them with safetensors.'
    try:
        names = tensor_files.load_safetensors(path)
    except BadInput:
        return "Nothing of it can be read; use another checkpoint, or copy it again."
    if any(name.startswith(checkpoint_file.MODEL_PREFIX) for name in names):
        return "Use another checkpoint. Its weights can still be read with safetensors, but nothing vouches for them."
    return "Use another checkpoint."


def _misfits(given: object, expected: Mapping[str, Tensor]) -> list[str]:
    """What keeps `expected` from being filled, a phrase for each kind."""
    if not isinstance(given, Mapping):
        return ["it holds no state dict"]
    others = [
        f"'{name}' is {_kind(given[name])}, not {_kind(tensor)}"
        for name, tensor in expected.items()
        if name in given and _kind(given[name]) != _kind(tensor)
    ]
    groups = {
        "missing": [f"'{name}'" for name in expected if name not in given],
        "unexpected": [f"'{str(name)[:60]}'" for name in given if name not in expected],
        "of another shape or type": others,
    }
    return [f"{what} {_some(names)}" for what, names in groups.items() if names]


def _damage(checkpoint: Checkpoint, shapes: list[tuple[int, ...]]) -> str | None:
    """What no run has written like that: on a GPU one wrong index would end the training of everybody."""
    try:
        order, cursor = _data_of(checkpoint)
        generator = torch.Generator()
        for state in (checkpoint.state["data"]["generator"], checkpoint.state["rng"]["cpu"]):
            generator.set_state(state)
        rate, _ = checkpoint.recipe["learning_rate"], dict(checkpoint.recipe["lr_scheduler"] or {})
        cuda = checkpoint.state["rng"]["cuda"]
        if cuda is not None and (cuda.dtype, tuple(cuda.shape)) != (torch.uint8, (CUDA_RNG_BYTES,)):
            return "The RNG state of the GPU in it is none"
        sound_order = order is None or (
            order.dtype is torch.int64 and torch.equal(order.sort().values, torch.arange(len(order)))
        )
        if not sound_order or type(cursor) is not int or not 0 <= cursor <= (0 if order is None else len(order)):
            return "The data order in it is no permutation of the samples"
        if not (isinstance(rate, float | int) and math.isfinite(rate) and rate > 0):
            return "The learning rate in it is no positive number"
        optimizer = checkpoint.state["optimizer"]
        if [index for group in optimizer["param_groups"] for index in group["params"]] != list(range(len(shapes))):
            return "The optimizer in it has another number of parameters than the network"
        for index, entries in optimizer["state"].items():
            if not all(_fits(entry, shapes[index]) for entry in entries.values()):
                return "The optimizer in it belongs to parameters of other shapes"
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError, IndexError):
        return "A part is missing in it, or is of another kind than UnifiedNN writes"
    return None


def _recipe_findings(checkpoint: Checkpoint, asked: Hyperparameters, samples: int, place: str) -> Iterator[Finding]:
    """What a checkpoint cannot go on with, and what it brings along whatever the spec says."""
    take, recipe, wanted = f"{place}.take", checkpoint.recipe, asked.model_dump(mode="json")
    had_lr, wanted_lr = recipe.get("lr_scheduler") or {}, wanted["lr_scheduler"] or {}
    parts = (
        ("optimizer", recipe.get("optimizer"), wanted["optimizer"], recipe.get("optimizer_args")),
        ("LR scheduler", had_lr.get("name"), wanted_lr.get("name"), had_lr.get("args")),
    )
    for what, had, wants, had_args in parts:
        wants_args = wanted["optimizer_args"] if what == "optimizer" else wanted_lr.get("args")
        if had != wants:
            message = f"The checkpoint was trained with {_named(what, had)}, the spec asks for {_named(what, wants)}."
            yield _finding(f"Another {what}", take, message, f"Ask for {_named(what, had)}. Or: {_WEIGHTS_ALONE}")
        elif had_args != wants_args:
            message = f"The {what} goes on with the checkpoint's arguments, {had_args}; the spec has {wants_args}."
            remedy = f"Write the checkpoint's into the spec. Or: {_WEIGHTS_ALONE}"
            yield _finding(f"Arguments of the {what}", take, message, remedy, severity="warning")
    order, cursor = _data_of(checkpoint)
    inside = () if order is None else (
        ("training samples", len(order), samples, "Give the same data"),
        ("samples in a batch", recipe.get("batch_size"), asked.batch_size, "Set the same batch size"),
        (
            "batches in a step",
            recipe.get("accumulation_steps", 1),
            asked.accumulation_steps,
            "Set the same accumulation_steps",
        ),
    )  # fmt: skip
    for what, had, has, remedy in inside:
        if had != has:
            message = (
                f"The checkpoint lies inside epoch {checkpoint.epoch + 1}, {cursor} samples on, with {had} {what}; "
                f"the spec has {has}."
            )
            yield _finding(f"Another number of {what}", take, message, f"{remedy}. Or: {_WEIGHTS_ALONE}")
    if asked.epochs <= checkpoint.epoch:
        message = f"The checkpoint has {checkpoint.epoch} epochs behind it, the spec asks for {asked.epochs} in all."
        yield _finding("Nothing left to train", take, message, f"Ask for more epochs. Or: {_WEIGHTS_ALONE}")
    if recipe.get("torch") != str(torch.__version__):
        message = f"The checkpoint was written with torch {recipe.get('torch')}, this is {torch.__version__}."
        remedy = "The training goes on, but equal bits are promised within one version alone."
        yield _finding("Another torch", f"{place}.file", message, remedy, severity="warning")


def _fits(entry: object, shape: tuple[int, ...]) -> bool:
    """Whether an entry of an optimizer can belong to a parameter: one number, its shape, or a row or column of it."""
    if not isinstance(entry, Tensor) or entry.shape == ():
        return True
    if len(entry.shape) != len(shape):
        return False
    return all(own in (1, size) for own, size in zip(entry.shape, shape, strict=True))


def _data_of(checkpoint: Checkpoint) -> tuple[Tensor | None, Any]:
    """Permutation of the current epoch, None between epochs, and the samples of it that are used."""
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
