"""Restores the state of optimizers and LR schedulers, and moves it between host and device, bit for bit.

torch's own `Optimizer.load_state_dict` casts floating-point state to the parameter's type and moves it to the
parameter's device, which would change NAdam's `mu_product` (float32 on the host).
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from unifiednn_core.formats.weights import tree_to_cpu

# Counters that torch keeps on the host (torch/optim, with neither `capturable` nor `fused`).
_ON_HOST = frozenset({"step", "mu_product"})
# Entries of a parameter group that a change of the learning rate scales.
LEARNING_RATES = ("lr", "initial_lr", "max_lr", "min_lr")
# Entries of a parameter group that some LR schedulers change.
MOMENTA = ("momentum", "betas")
# Rates in the state of each parameter: ASGD's rate of the next step, and Rprop's step sizes.
_REMEMBERED_RATES = ("eta", "step_size")
# Rates in LR schedulers; each has some of them.
SCHEDULED_RATES = ("base_lrs", "max_lrs", "min_lrs", "_last_lr", "eta_min", "default_min_lr")
# Everything in an LR scheduler that its steps or a change of the learning rate change; each has some of it.
CHANGING_IN_LR_SCHEDULERS = frozenset(
    {*SCHEDULED_RATES, "last_epoch", "_step_count", "T_cur", "T_i", "best", "num_bad_epochs", "cooldown_counter"}
)
# LR schedulers inside of one, in its state.
STAGES = "_schedulers"


def captured(optimizer: Optimizer) -> dict[str, Any]:
    """Host copy of `optimizer.state_dict()`, in which no group asks for a fused kernel: that belongs to the profile."""
    state: dict[str, Any] = tree_to_cpu(optimizer.state_dict())
    for group in state["param_groups"]:
        group.update({"fused": None} if "fused" in group else {})
    return state


def restore_state(optimizer: Optimizer, state: Mapping[str, Any]) -> None:
    """Restore a copy of `optimizer.state_dict()`; of its groups only what training changes, never a flag."""
    for group, saved in zip(optimizer.param_groups, state["param_groups"], strict=True):
        group.update({key: saved[key] for key in (*LEARNING_RATES, *MOMENTA) if key in group and key in saved})
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    optimizer.state.clear()
    for index, entries in state["state"].items():
        optimizer.state[parameters[index]] = _on(tree_to_cpu(entries), parameters[index], _is_fused(optimizer))


def restore_lr_scheduler(lr_scheduler: LRScheduler, state: Mapping[str, Any]) -> None:
    """Restore from a copy of `lr_scheduler.state_dict()` only what training changes.

    torch's own `load_state_dict` takes every attribute that the state names, also `optimizer` and `step`.
    """
    for name in CHANGING_IN_LR_SCHEDULERS & state.keys() & vars(lr_scheduler).keys():
        setattr(lr_scheduler, name, tree_to_cpu(state[name]))
    for stage, own in zip(stages_of(lr_scheduler), state.get(STAGES, ()), strict=True):
        restore_lr_scheduler(stage, own)


def stages_of(lr_scheduler: LRScheduler) -> list[LRScheduler]:
    """The LR schedulers of a sequence; empty for any other."""
    return list(vars(lr_scheduler).get(STAGES, ()))


def follow_parameters(optimizer: Optimizer) -> None:
    """Move the state to the devices of its parameters."""
    for parameter, entries in optimizer.state.items():
        entries.update(_on(entries, parameter, _is_fused(optimizer)))


def follow_layout(optimizer: Optimizer) -> None:
    """Lay out the state as its parameters are, after a change of their memory format."""
    for parameter, entries in optimizer.state.items():
        for name, value in entries.items():
            if isinstance(value, Tensor) and value.shape == parameter.shape and value.stride() != parameter.stride():
                entries[name] = torch.empty_like(parameter, dtype=value.dtype, device=value.device).copy_(value)


def scale_learning_rates(optimizer: Optimizer, lr_scheduler: LRScheduler | None, factor: float) -> None:
    """Multiply the learning rate and all values that it is computed from."""
    for group in optimizer.param_groups:
        group.update({key: group[key] * factor for key in LEARNING_RATES if key in group})
    for entries in optimizer.state.values():
        entries.update({name: entries[name] * factor for name in _REMEMBERED_RATES if name in entries})
    if lr_scheduler is not None:
        for one in (lr_scheduler, *stages_of(lr_scheduler)):
            for name in vars(one).keys() & SCHEDULED_RATES:
                rates = getattr(one, name)
                setattr(one, name, [rate * factor for rate in rates] if isinstance(rates, list) else rates * factor)


def _is_fused(optimizer: Optimizer) -> bool:
    """Whether a fused kernel updates, which also counts steps on the device."""
    return bool(optimizer.param_groups[0].get("fused"))


def _on(entries: Mapping[str, Any], parameter: Tensor, fused: bool) -> dict[str, Any]:
    tensors = {name: value for name, value in entries.items() if isinstance(value, Tensor)}
    host = frozenset[str]() if fused else _ON_HOST
    return {**entries, **{name: t.to("cpu" if name in host else parameter.device) for name, t in tensors.items()}}
