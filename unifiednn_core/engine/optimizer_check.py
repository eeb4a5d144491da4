"""Check the state of an optimizer and an LR scheduler against those that the spec builds.

torch's kernels trust that state: a fused one reads and writes a whole parameter's worth of memory behind a shorter
buffer. So a step on small stand-ins of the parameters shows which entries exist, of which type and shape; what
training never changes has to be what the spec gives; and what it changes lies within bounds.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from unifiednn_core.base.errors import BadCheckpoint
from unifiednn_core.engine import bounds
from unifiednn_core.engine.optimizer_state import CHANGING_IN_LR_SCHEDULERS, LEARNING_RATES, MOMENTA, SCHEDULED_RATES
from unifiednn_core.engine.optimizers import build_lr_scheduler, build_optimizer
from unifiednn_core.spec.run import Hyperparameters

_Kind = tuple[torch.dtype, tuple[int, ...]]
"""Type and shape of a parameter."""


class Fresh(NamedTuple):
    """What the spec builds."""

    group: Mapping[str, Any]
    """The only parameter group, without its parameters, before the first step."""
    entries: Mapping[_Kind, Mapping[str, _Kind]]
    """Type and shape of each entry that a step leaves for a parameter."""
    lr_scheduler: Mapping[str, Any] | None
    """State before the first step."""


def fresh(parameters: Sequence[Tensor], hyper: Hyperparameters) -> Fresh:
    """Build optimizer and LR scheduler of the spec and take a step; needs no memory for large parameters.

    Raises `BadCheckpoint` if torch refuses the arguments of the spec.
    """
    kinds = list(dict.fromkeys(map(_kind, parameters)))
    stand_ins = [_stand_in(kind) for kind in kinds]
    try:
        optimizer = build_optimizer(stand_ins, hyper)
        lr_scheduler = build_lr_scheduler(optimizer, hyper)
        [group] = optimizer.param_groups
        before = {key: value for key, value in group.items() if key != "params"}
        scheduled = None if lr_scheduler is None else dict(lr_scheduler.state_dict())
        if _cycles(scheduled) and "momentum" in group:
            group["momentum"] = 0.5  # it comes to that, even if it begins with 0
        optimizer.step()
    except (RuntimeError, ValueError, TypeError, ArithmeticError) as error:
        raise BadCheckpoint(f"The checkpoint has no use: torch refuses the optimizer of the spec ({error}).") from None
    entries = {
        kind: {name: _real(_kind(value), stand_in, kind) for name, value in optimizer.state[stand_in].items()}
        for kind, stand_in in zip(kinds, stand_ins, strict=True)
    }
    return Fresh(before, entries, scheduled)


def check_optimizer(saved: object, parameters: Sequence[Tensor], expected: Fresh, steps: int) -> None:
    """Check a `state_dict()` of the optimizer after so many steps; raises `BadCheckpoint`."""
    parts = bounds.entries(saved, "optimizer", ("param_groups", "state"))
    groups, cycled = parts["param_groups"], MOMENTA if _cycles(expected.lr_scheduler) else ()
    if not isinstance(groups, list) or len(groups) != 1:
        raise bounds.refusal(groups, "optimizer.param_groups", "a list of one group")
    place = "optimizer.param_groups.0"
    changing = {*LEARNING_RATES, *cycled} & expected.group.keys()
    group = bounds.entries(groups[0], place, {"params", *changing}, expected.group.keys())
    if not bounds.same(group["params"], list(range(len(parameters)))):
        raise BadCheckpoint(
            f"The checkpoint has an optimizer for other parameters than the {len(parameters)} of this network."
        )
    for key, value in expected.group.items():
        if key in LEARNING_RATES:
            bounds.number(group[key], f"{place}.{key}")
        elif key in cycled:
            _check_momentum(group[key], value, f"{place}.{key}")
        elif key in group:
            bounds.equal(group[key], value, f"{place}.{key}")
    _check_entries(parts["state"], parameters, expected, steps)


def _check_momentum(value: Any, expected: Any, place: str) -> None:
    """A momentum that the LR scheduler changes, or the first of two betas."""
    if isinstance(expected, list | tuple):
        if not isinstance(value, list | tuple) or len(value) != len(expected):
            raise bounds.refusal(value, place, f"a list of {len(expected)} numbers")
        bounds.equal(value[1:], expected[1:], place)
        value = value[0]
    bounds.number(value, place, most=1.0)


def _check_entries(saved: object, parameters: Sequence[Tensor], expected: Fresh, steps: int) -> None:
    """A parameter has all entries of a step, or none: a frozen one never gets them."""
    place = "optimizer.state"
    if not isinstance(saved, dict):
        raise bounds.refusal(saved, place, "a dict")
    for index, given in saved.items():
        own = f"{place}.{bounds.whole(index, f'a key of {place}', 0, len(parameters) - 1)}"
        kinds = expected.entries[_kind(parameters[index])]
        if isinstance(given, dict) and not given:
            continue
        for name, value in bounds.entries(given, own, kinds.keys()).items():
            entry = bounds.tensor(value, f"{own}.{name}", *kinds[name])
            if name == "step" and not 0 <= entry.item() <= steps:
                raise bounds.refusal(entry.item(), f"{own}.step", f"a number from 0 to {steps}")


def check_lr_scheduler(saved: object, expected: Mapping[str, Any] | None, steps: int) -> None:
    """Check a `state_dict()` of the LR scheduler after so many steps of the training; raises `BadCheckpoint`."""
    if expected is None:
        bounds.equal(saved, None, "lr_scheduler")
        return
    place, changing = "lr_scheduler", expected.keys() & CHANGING_IN_LR_SCHEDULERS
    given = bounds.entries(saved, place, changing, expected.keys())
    most = {"_step_count": steps + 1, "cooldown_counter": expected.get("cooldown", 0)}
    for key, value in expected.items():
        where = f"{place}.{key}"
        if key in SCHEDULED_RATES and isinstance(value, list):
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
            bounds.whole(given[key], where, 0, most.get(key, steps))
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
