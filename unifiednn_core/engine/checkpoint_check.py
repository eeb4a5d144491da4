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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, NamedTuple, get_args

import torch
from pydantic import ValidationError
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler

from unifiednn_core.base.errors import BadCheckpoint
from unifiednn_core.engine import bounds, kinds
from unifiednn_core.engine.checkpoint import Checkpoint, transient_buffers
from unifiednn_core.engine.optimizers import (
    CHANGING_IN_LR_SCHEDULERS,
    LEARNING_RATES,
    MOMENTA,
    SCHEDULED_RATES,
    STAGES,
    Named,
    build_lr_scheduler,
    divided,
    optimizer_of,
)
from unifiednn_core.engine.progress import EpochFigures, used_samples
from unifiednn_core.spec.run import EarlyStopping, Hyperparameters

_Kind = tuple[torch.dtype, tuple[int, ...]]
"""Type and shape of a parameter."""


class Fresh(NamedTuple):
    """What the spec builds."""

    groups: Sequence[Mapping[str, Any]]
    """The parameter groups before the first step; `params` are the places of their parameters."""
    entries: Sequence[Mapping[str, _Kind]]
    """Type and shape of each entry that a step leaves, for each parameter in the order of the optimizer."""
    lr_scheduler: Mapping[str, Any] | None
    """State before the first step."""


def fresh(named: Named, hyper: Hyperparameters) -> Fresh:
    """Build optimizer and LR scheduler of the spec and take a step; needs no memory for large parameters.

    Raises `BadCheckpoint` if torch refuses the arguments of the spec.
    """
    real = divided(named, hyper)
    stand_ins = [{kind: _stand_in(kind) for kind in map(_kind, group["params"])} for group in real]
    try:
        optimizer = optimizer_of(
            [{**group, "params": list(own.values())} for group, own in zip(real, stand_ins, strict=True)], hyper
        )
        lr_scheduler = build_lr_scheduler(optimizer, hyper)
        before = [dict(group) for group in optimizer.param_groups]
        scheduled = None if lr_scheduler is None else dict(lr_scheduler.state_dict())
        for group in optimizer.param_groups:
            if _cycles(scheduled) and "momentum" in group:
                group["momentum"] = 0.5  # it comes to that, even if it begins with 0
        optimizer.step()
    except (RuntimeError, ValueError, TypeError, ArithmeticError) as error:
        raise BadCheckpoint(f"The checkpoint has no use: torch refuses the optimizer of the spec ({error}).") from None
    entries = list[Mapping[str, _Kind]]()
    for whole, group, own in zip(real, before, stand_ins, strict=True):
        left = {
            kind: {name: _real(_kind(value), stand_in, kind) for name, value in optimizer.state[stand_in].items()}
            for kind, stand_in in own.items()
        }
        group["params"] = list(range(len(entries), len(entries) + len(whole["params"])))
        entries += [left[_kind(parameter)] for parameter in whole["params"]]
    return Fresh(before, entries, scheduled)


def check_optimizer(saved: object, expected: Fresh, steps: int) -> None:
    """Check a `state_dict()` of the optimizer after so many steps; raises `BadCheckpoint`."""
    parts = bounds.entries(saved, "optimizer", ("param_groups", "state"))
    groups, cycled = parts["param_groups"], MOMENTA if _cycles(expected.lr_scheduler) else ()
    count = len(expected.groups)
    if not isinstance(groups, list) or len(groups) != count:
        raise bounds.refusal(groups, "optimizer.param_groups", f"a list of {count} group{'s' * (count > 1)}")
    for index, (own, given) in enumerate(zip(expected.groups, groups, strict=True)):
        _check_group(given, own, f"optimizer.param_groups.{index}", cycled, len(expected.entries))
    _check_entries(parts["state"], expected, steps)


def _check_group(given: object, expected: Mapping[str, Any], place: str, cycled: Iterable[str], count: int) -> None:
    """One parameter group of an optimizer over `count` parameters."""
    changing = {*LEARNING_RATES, *cycled} & expected.keys()
    group = bounds.entries(given, place, {"params", *changing}, expected.keys())
    if not bounds.same(group["params"], expected["params"]):
        raise BadCheckpoint(f"The checkpoint has an optimizer for other parameters than the {count} of this network.")
    for key, value in expected.items():
        if key in LEARNING_RATES:
            bounds.number(group[key], f"{place}.{key}")
        elif key in cycled:
            _check_momentum(group[key], value, f"{place}.{key}")
        elif key in group:
            bounds.equal(group[key], value, f"{place}.{key}")


def _check_momentum(value: Any, expected: Any, place: str) -> None:
    """A momentum that the LR scheduler changes, or the first of two betas."""
    if isinstance(expected, list | tuple):
        if not isinstance(value, list | tuple) or len(value) != len(expected):
            raise bounds.refusal(value, place, f"a list of {len(expected)} numbers")
        bounds.equal(value[1:], expected[1:], place)
        value = value[0]
    bounds.number(value, place, most=1.0)


def _check_entries(saved: object, expected: Fresh, steps: int) -> None:
    """A parameter has all entries of a step, or none: a frozen one never gets them."""
    place = "optimizer.state"
    if not isinstance(saved, dict):
        raise bounds.refusal(saved, place, "a dict")
    for index, given in saved.items():
        own = f"{place}.{bounds.whole(index, f'a key of {place}', 0, len(expected.entries) - 1)}"
        kinds = expected.entries[index]
        if isinstance(given, dict) and not given:
            continue
        for name, value in bounds.entries(given, own, kinds.keys()).items():
            entry = bounds.tensor(value, f"{own}.{name}", *kinds[name])
            if name == "step" and not 0 <= entry.item() <= steps:
                raise bounds.refusal(entry.item(), f"{own}.step", f"a number from 0 to {steps}")


def check_lr_scheduler(
    saved: object, expected: Mapping[str, Any] | None, steps: int, place: str = "lr_scheduler"
) -> None:
    """Check a `state_dict()` of the LR scheduler after so many steps of the training; raises `BadCheckpoint`."""
    if expected is None:
        bounds.equal(saved, None, place)
        return
    changing = expected.keys() & {*CHANGING_IN_LR_SCHEDULERS, STAGES}
    given = bounds.entries(saved, place, changing, expected.keys())
    most = {"_step_count": steps + 1, "cooldown_counter": expected.get("cooldown", 0)}
    for key, value in expected.items():
        where = f"{place}.{key}"
        if key == STAGES:
            if not isinstance(given[key], list) or len(given[key]) != len(value):
                raise bounds.refusal(given[key], where, f"a list of {len(value)} LR schedulers")
            for index, (stage, own) in enumerate(zip(given[key], value, strict=True)):
                check_lr_scheduler(stage, own, steps, f"{where}.{index}")
        elif key in SCHEDULED_RATES and isinstance(value, list):
            if not isinstance(given[key], list) or len(given[key]) != len(value):
                raise bounds.refusal(given[key], where, f"a list of {len(value)} numbers")
            for rate in given[key]:
                bounds.number(rate, where)
        elif key in SCHEDULED_RATES:
            bounds.number(given[key], where)
        elif key == "best":
            bounds.real(given[key], where)
        elif key == "T_i":  # the last cycle is at most T_mult times as long as all steps before it
            bounds.whole(given[key], where, value, max(value, steps * expected["T_mult"]))
        elif key in changing:
            bounds.whole(given[key], where, min(0, value), most.get(key, steps))  # below 0: its stage is still to come
        elif key in given:
            bounds.equal(given[key], value, where)


def _cycles(lr_scheduler: Mapping[str, Any] | None) -> bool:
    """Whether it changes momenta."""
    return lr_scheduler is not None and bool(lr_scheduler.get("cycle_momentum"))


def _kind(tensor: Tensor) -> _Kind:
    return tensor.dtype, tuple(tensor.shape)


def _stand_in(kind: _Kind) -> nn.Parameter:
    """A parameter with as many dimensions, all small, with a gradient if an optimizer could step it.

    A dimension of 1 stays 1; all others are larger and differ, so that they can be told apart in the optimizer's state.
    """
    dtype, shape = kind
    trains = dtype.is_floating_point and dtype.itemsize > 1
    small = [1 if size == 1 else 2 + place for place, size in enumerate(shape)]
    parameter = nn.Parameter(torch.zeros(small, dtype=dtype), requires_grad=trains)
    parameter.grad = torch.zeros_like(parameter) if trains else None
    return parameter


def _real(entry: _Kind, stand_in: Tensor, kind: _Kind) -> _Kind:
    """Kind of an entry for the parameter itself: a scalar, its shape, or (Adafactor) a row or column of it."""
    dtype, shape = entry
    sizes = zip(shape, stand_in.shape, kind[1], strict=True) if shape else ()
    return dtype, tuple(size if own == small else own for own, small, size in sizes)


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
    made = fresh(module.named_parameters(), hyper)
    check_optimizer(state["optimizer"], made, steps)
    check_lr_scheduler(state["lr_scheduler"], made.lr_scheduler, steps)
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
