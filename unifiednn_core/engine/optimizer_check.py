"""Check the state of an optimizer and an LR scheduler against those that the spec builds.

torch's kernels trust that state: a fused one reads and writes a whole parameter's worth of memory behind a shorter
buffer. So a step on small stand-ins of the parameters shows which entries exist, of which type and shape; what
training never changes has to be what the spec gives; and what it changes lies within bounds.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from unifiednn_core.base.errors import BadCheckpoint
from unifiednn_core.engine import bounds
from unifiednn_core.engine.optimizer_state import (
    CHANGING_IN_LR_SCHEDULERS,
    LEARNING_RATES,
    MOMENTA,
    SCHEDULED_RATES,
    STAGES,
)
from unifiednn_core.engine.optimizers import Named, build_lr_scheduler, divided, optimizer_of
from unifiednn_core.spec.run import Hyperparameters

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
