"""Check that a checkpoint holds nothing but what a training of this very sub-model could have written.

A checkpoint is a file of strangers, and anyone can write one with right hashes. So nothing takes its structure from the
file: network, optimizer and LR scheduler come from the spec and say which entries exist, of which type and shape; what
training never changes equals theirs; and what it changes lies within bounds.

Numbers in tensors may be NaN here: a run may write its last checkpoint just before it diverges. Intake refuses them.
"""

import math
import re
import struct
import sys
from dataclasses import fields
from typing import NamedTuple, get_args

import torch
from pydantic import ValidationError
from torch import nn
from torch.amp.grad_scaler import GradScaler

from unifiednn_core.base.errors import BadCheckpoint
from unifiednn_core.engine import bounds, kinds, optimizer_check
from unifiednn_core.engine.checkpoint import Checkpoint, transient_buffers
from unifiednn_core.engine.progress import EpochFigures, used_samples
from unifiednn_core.spec.run import EarlyStopping, Hyperparameters

_MOST_LABELS = 2**62
_PARTS = ("model", "buffers", "optimizer", "lr_scheduler", "rng", "data", "metrics")
_FACTS = ("seed", "samples", "device_type", "torch")
_PROFILE, _KINDS = "profile", "kinds"
_NEEDED = ("optimizer", "learning_rate", "batch_size", *_FACTS)
_FIGURES = tuple(field.name for field in fields(EpochFigures))
_METRICS: tuple[str, ...] = get_args(EarlyStopping.model_fields["metric"].annotation)
_FIGURE_BOUNDS = {
    "train_loss": (-sys.float_info.max, sys.float_info.max),
    "train_accuracy": (0.0, 1.0),
    "test_loss": (-math.inf, math.inf),
    "test_accuracy": (0.0, 1.0),
}
_WORD = re.compile(r"[\w.+-]{1,64}", re.ASCII)
# torch's CPU generator: seed, outputs left, whether seeded, place of the next output, 624 words, three numbers and a
# flag of a normal variate, and another with its flag (CPUGeneratorImplState).
_CPU_RNG = struct.Struct("=QiiQ624Q3di4xfB3x")
_WORDS = 624
_CUDA_RNG = struct.Struct("=Qq")  # seed and offset
_CUDA_RNG_STEP = 4


class Recipe(NamedTuple):
    """What a checkpoint says about the training that wrote it."""

    hyperparameters: Hyperparameters
    samples: int
    torch: str
    fast: bool
    """Whether it has steps of the profile `fast`, whose bits are not those of the recipe."""
    kinds: tuple[kinds.Kind, ...]
    """Kinds of device that its steps were trained on, the last one last."""


def recipe_of(checkpoint: Checkpoint) -> Recipe:
    """Read the recipe, whose hyper-parameters are as strictly checked as those of a spec; raises `BadCheckpoint`."""
    recipe = bounds.entries(checkpoint.recipe, "recipe", _NEEDED, (_PROFILE, _KINDS, *Hyperparameters.model_fields))
    bounds.whole(recipe["seed"], "recipe.seed", 0, 2**63 - 1)
    for key in ("device_type", "torch"):
        if not isinstance(recipe[key], str) or not _WORD.fullmatch(recipe[key]):
            raise bounds.refusal(recipe[key], f"recipe.{key}", "a word")
    if recipe.get(_PROFILE, "exact") not in ("exact", "fast"):
        raise bounds.refusal(recipe[_PROFILE], "recipe.profile", "exact or fast")
    trained_on, others = kinds.of_recipe(recipe), (*_FACTS, _PROFILE, _KINDS)
    try:
        hyper = Hyperparameters.model_validate({key: recipe[key] for key in recipe if key not in others})
    except ValidationError as error:
        detail = error.errors()[0]
        place = ".".join(("recipe", *map(str, detail["loc"])))
        raise BadCheckpoint(f"The checkpoint has an invalid entry {bounds.shown(place)}: {detail['msg']}") from None
    samples = bounds.whole(recipe["samples"], "recipe.samples", 1, _MOST_LABELS)
    return Recipe(hyper, samples, str(recipe["torch"]), recipe.get(_PROFILE) == "fast", trained_on)


def check(checkpoint: Checkpoint, module: nn.Module, hyper: Hyperparameters, samples: int) -> None:
    """Raise `BadCheckpoint` with the first entry that no training of this network has written.

    `samples` is the size of the training set. Copies nothing as large as the network.
    """
    parts = _PARTS if hyper.ema is None else (*_PARTS, "ema")
    state, steps = bounds.entries(checkpoint.state, "state", parts, ("scaler",)), checkpoint.step
    if "scaler" in state:
        _check_scaler(state["scaler"], steps)
    weights = module.state_dict()
    averages = {"ema": weights} if hyper.ema is not None else {}
    for part, expected in {"model": weights, "buffers": transient_buffers(module), **averages}.items():
        if found := bounds.misfits(state[part], expected):
            raise BadCheckpoint(f"The checkpoint has another {part} than the network: {'; '.join(found)}.")
    fresh = optimizer_check.fresh(module.named_parameters(), hyper)
    optimizer_check.check_optimizer(state["optimizer"], fresh, steps)
    optimizer_check.check_lr_scheduler(state["lr_scheduler"], fresh.lr_scheduler, steps)
    rng = bounds.entries(state["rng"], "rng", ("cpu", "cuda"))
    _check_cpu_rng(rng["cpu"], "rng.cpu")
    if rng["cuda"] is not None:
        _check_cuda_rng(rng["cuda"], "rng.cuda")
    data = bounds.entries(state["data"], "data", ("generator", "order", "cursor"))
    metrics = bounds.entries(state["metrics"], "metrics", ("last", "improvement", "tally"))
    _check_cpu_rng(data["generator"], "data.generator")
    begun = _check_last(metrics["last"], checkpoint)
    _check_improvement(metrics["improvement"], checkpoint)
    _check_tally(metrics["tally"])
    inside = _steps_inside(data["order"], data["cursor"], hyper, samples)
    bounds.whole(steps, "step", begun + inside, begun + inside)


def _check_scaler(state: object, steps: int) -> None:
    fresh = GradScaler("cpu").state_dict()
    scaler = bounds.entries(state, "scaler", fresh)
    bounds.real(scaler["scale"], "scaler.scale", 0.0, bounds.LARGEST)
    bounds.whole(scaler["_growth_tracker"], "scaler._growth_tracker", 0, steps)
    for name in fresh.keys() - {"scale", "_growth_tracker"}:
        bounds.equal(scaler[name], fresh[name], f"scaler.{name}")


def _check_cpu_rng(state: object, place: str) -> None:
    """Torch takes the place of the next output on trust: behind the last word lies the memory of others."""
    content = bounds.tensor(state, place, torch.uint8, (_CPU_RNG.size,)).numpy().tobytes()
    _, left, seeded, following, *rest = _CPU_RNG.unpack(content)
    words, normals, flags = rest[:_WORDS], (*rest[_WORDS : _WORDS + 3], rest[-2]), (seeded, rest[-3], rest[-1])
    drawn = 1 <= following <= _WORDS and left + following == _WORDS + 1
    in_place = drawn or (left, following) == (1, 0)
    sound = max(words) < 2**32 and all(map(math.isfinite, normals)) and seeded and all(flag in (0, 1) for flag in flags)
    if not (in_place and sound):
        raise BadCheckpoint(f"The checkpoint has an RNG state {place} in which no generator can be.")


def _check_cuda_rng(state: object, place: str) -> None:
    content = bounds.tensor(state, place, torch.uint8, (_CUDA_RNG.size,)).numpy().tobytes()
    _, offset = _CUDA_RNG.unpack(content)
    if offset < 0 or offset % _CUDA_RNG_STEP:
        raise BadCheckpoint(f"The checkpoint has an RNG state {place} in which no generator can be.")


def _steps_inside(order: object, cursor: object, hyper: Hyperparameters, samples: int) -> int:
    """Steps done in the current epoch. On a GPU one wrong index would end all trainings."""
    if order is None:
        return bounds.whole(cursor, "data.cursor", 0, 0)
    indices = bounds.tensor(order, "data.order", torch.int64, (samples,))
    least, most = (int(end) for end in indices.aminmax())
    inside, repeats = least >= 0 and most < samples, hyper.sampler is not None and hyper.sampler.name == "balanced"
    if not inside or not (repeats or torch.zeros(samples, dtype=torch.bool).index_fill_(0, indices, 1).all()):
        what = "drawn from the samples" if repeats else "a permutation of the samples"
        raise BadCheckpoint(f"The checkpoint has a data.order that is not {what}.")
    done = bounds.whole(cursor, "data.cursor", 1, used_samples(samples, hyper) - 1)
    steps, rest = divmod(done, hyper.batch_size * hyper.accumulation_steps)
    if rest:
        raise bounds.refusal(done, "data.cursor", "a whole number of steps")
    return steps


def _check_last(row: object, checkpoint: Checkpoint) -> int:
    """Return the steps up to the end of the last epoch, whose figures reach pages and charts."""
    place, epoch = "metrics.last", checkpoint.epoch
    if row is None and not epoch:
        return 0
    last = bounds.entries(row, place, _FIGURES)
    bounds.whole(last["epoch"], f"{place}.epoch", epoch, epoch)
    bounds.real(last["learning_rate"], f"{place}.learning_rate", 0.0)
    for name, (least, most) in _FIGURE_BOUNDS.items():
        if last[name] is not None:
            bounds.real(last[name], f"{place}.{name}", least, most, or_nan=name == "test_loss")
    return bounds.whole(last["step"], f"{place}.step", epoch, checkpoint.step)


def _check_improvement(seen: object, checkpoint: Checkpoint) -> None:
    place = "metrics.improvement"
    if seen is None:
        return
    improvement = bounds.entries(seen, place, ("metric", "best", "bad_epochs"))
    if improvement["metric"] not in _METRICS:
        raise bounds.refusal(improvement["metric"], f"{place}.metric", " or ".join(_METRICS))
    bounds.real(improvement["best"], f"{place}.best")
    bounds.whole(improvement["bad_epochs"], f"{place}.bad_epochs", 0, checkpoint.epoch)


def _check_tally(sums: object) -> None:
    place = "metrics.tally"
    tally = bounds.entries(sums, place, ("loss", "correct", "samples", "labels"))
    samples = bounds.whole(tally["samples"], f"{place}.samples", 0, _MOST_LABELS)
    labels = bounds.whole(tally["labels"], f"{place}.labels", 0, _MOST_LABELS)
    for name, dtype, count in (("loss", torch.float64, samples), ("correct", torch.int64, labels)):
        if not count:
            bounds.equal(tally[name], None, f"{place}.{name}")
            continue
        total = bounds.tensor(tally[name], f"{place}.{name}", dtype, ()).item()
        if not math.isfinite(total) or (name == "correct" and not 0 <= total <= labels):
            raise bounds.refusal(total, f"{place}.{name}", "a possible sum")
