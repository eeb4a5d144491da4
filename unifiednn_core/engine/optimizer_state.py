"""Restores the state of optimizers and LR schedulers, and moves it between host and device, bit for bit.

torch's own `Optimizer.load_state_dict` casts floating-point state to the parameter's type and moves it to the
parameter's device, which would change NAdam's `mu_product` (float32 on the host).
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from unifiednn_core.base.errors import BadCheckpoint
from unifiednn_core.formats.weights import tree_to_cpu

# Counters that torch keeps on the host (torch/optim, with neither `capturable` nor `fused`).
_ON_HOST = frozenset({"step", "mu_product"})
# Entries of a parameter group that a change of the learning rate scales.
_LEARNING_RATES = ("lr", "initial_lr", "max_lr", "min_lr")
# The same in the state of each parameter: ASGD's rate of the next step, and Rprop's step sizes.
_REMEMBERED_RATES = ("eta", "step_size")
# The same in LR schedulers; each has some of them.
_SCHEDULED_RATES = ("base_lrs", "max_lrs", "min_lrs", "_last_lr")


def restore_state(optimizer: Optimizer, state: Mapping[str, Any]) -> None:
    """Restore a copy of `optimizer.state_dict()`; raises `BadCheckpoint` for the state of another optimizer."""
    groups, saved = optimizer.param_groups, state["param_groups"]
    sizes, saved_sizes = [len(group["params"]) for group in groups], [len(group["params"]) for group in saved]
    if sizes != saved_sizes:
        raise BadCheckpoint(
            f"The optimizer of the checkpoint has {sum(saved_sizes)} parameters, this one has {sum(sizes)}. "
            "Only its weights can be used."
        )
    parameters = [parameter for group in groups for parameter in group["params"]]
    for group, saved_group in zip(groups, saved, strict=True):
        group.update({key: value for key, value in tree_to_cpu(saved_group).items() if key != "params"})
    optimizer.state.clear()
    for index, entries in state["state"].items():
        optimizer.state[parameters[index]] = _on(tree_to_cpu(entries), parameters[index])


def follow_parameters(optimizer: Optimizer) -> None:
    """Move the state to the devices of its parameters."""
    for parameter, entries in optimizer.state.items():
        entries.update(_on(entries, parameter))


def scale_learning_rates(optimizer: Optimizer, lr_scheduler: LRScheduler | None, factor: float) -> None:
    """Multiply the learning rate and all values that it is computed from."""
    for group in optimizer.param_groups:
        group.update({key: group[key] * factor for key in _LEARNING_RATES if key in group})
    for entries in optimizer.state.values():
        entries.update({name: entries[name] * factor for name in _REMEMBERED_RATES if name in entries})
    if lr_scheduler is not None:
        for name in _SCHEDULED_RATES:
            if hasattr(lr_scheduler, name):
                setattr(lr_scheduler, name, [rate * factor for rate in getattr(lr_scheduler, name)])
        if hasattr(lr_scheduler, "eta_min"):
            lr_scheduler.eta_min *= factor


def _on(entries: Mapping[str, Any], parameter: Tensor) -> dict[str, Any]:
    tensors = {name: value for name, value in entries.items() if isinstance(value, Tensor)}
    return {**entries, **{name: t.to("cpu" if name in _ON_HOST else parameter.device) for name, t in tensors.items()}}
