"""Optimizer, criterion and LR scheduler as the hyper-parameters ask for them, the update of a step, and their state.

The state is restored, and moved between host and device, bit for bit. torch's own `Optimizer.load_state_dict` casts
floating-point state to the parameter's type and moves it to the parameter's device, which would change NAdam's
`mu_product` (float32 on the host).
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.nn.utils import clip_grad_norm_, clip_grad_value_
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, SequentialLR
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from unifiednn_core.data.balance import class_weights
from unifiednn_core.engine.step import OutputIsLoss
from unifiednn_core.formats.weights import tree_to_cpu
from unifiednn_core.spec.choices import CRITERIA, LR_FORMULAS, LR_SCHEDULES, NO_CRITERION, OPTIMIZERS, SEQUENCE
from unifiednn_core.spec.hyperparameters import LRStage
from unifiednn_core.spec.run import Hyperparameters, LRSchedulerSpec

Named = Iterable[tuple[str, nn.Parameter]]
"""What `named_parameters()` of a network gives."""


def build_optimizer(named: Named, hyperparameters: Hyperparameters, *, fused: bool = False) -> Optimizer:
    """Build the optimizer and freeze what the spec freezes; raises what torch raises for values that it refuses.

    `fused` takes torch's fused kernel, which some optimizers have.
    """
    named = list(named)
    for name, parameter in named:
        group = hyperparameters.group_of(name)
        if group is not None and hyperparameters.parameter_groups[group].frozen:
            parameter.requires_grad_(False)
    return optimizer_of(divided(named, hyperparameters), hyperparameters, fused=fused)


def divided(named: Named, hyperparameters: Hyperparameters) -> list[dict[str, Any]]:
    """Parameter groups as torch takes them: of what no group names, then those of the spec, without frozen and empty.

    Each has its parameters in the order of the network.
    """
    members: dict[int | None, list[nn.Parameter]] = {None: []}
    for name, parameter in named:
        members.setdefault(hyperparameters.group_of(name), []).append(parameter)
    groups: list[dict[str, Any]] = [{"params": members[None]}]
    for place, asked in enumerate(hyperparameters.parameter_groups):
        rate = {} if asked.learning_rate is None else {"lr": asked.learning_rate}
        if not asked.frozen:
            groups.append({"params": members.get(place, []), **rate, **asked.optimizer_args})
    return [group for group in groups if group["params"]]


def optimizer_of(groups: list[dict[str, Any]], hyperparameters: Hyperparameters, *, fused: bool = False) -> Optimizer:
    """Build the optimizer over parameter groups as `divided` returns them."""
    optimizer: Callable[..., Optimizer] = getattr(torch.optim, OPTIMIZERS[hyperparameters.optimizer].torch_class)
    kernel = {"fused": True} if fused else {}
    return optimizer(groups, lr=hyperparameters.learning_rate, **hyperparameters.optimizer_args, **kernel)


def build_average(module: nn.Module, hyperparameters: Hyperparameters) -> AveragedModel | None:
    """Build the moving average of a network, if the spec has one. Its step counter stays on the host."""
    if hyperparameters.ema is None:
        return None
    averaged = AveragedModel(module, multi_avg_fn=get_ema_multi_avg_fn(hyperparameters.ema.decay))  # type: ignore[no-untyped-call]
    return averaged.requires_grad_(False).eval()


def build_criterion(hyperparameters: Hyperparameters, targets: Iterable[Tensor] | None = None) -> nn.Module:
    """Build the criterion, with lists as tensors; raises what torch raises for values that it refuses.

    Balanced class weights come from the `targets` of the training data, block by block. Class weights and the like are
    its buffers, so it has to follow the network to its device.
    """
    if hyperparameters.criterion == NO_CRITERION:
        return OutputIsLoss()
    criterion = getattr(nn, CRITERIA[hyperparameters.criterion].torch_class)
    given = {
        name: torch.tensor(value, dtype=torch.float32) if isinstance(value, list) else value
        for name, value in hyperparameters.criterion_args.items()
    }
    if hyperparameters.class_weights is not None:
        if targets is None:
            raise ValueError("there are no targets to balance")
        given["weight"] = torch.tensor(class_weights(targets, hyperparameters.ignored_label), dtype=torch.float32)
    built: nn.Module = criterion(**given)
    if isinstance(built, nn.BCELoss):
        built.register_forward_pre_hook(_require_probabilities)
    return built


def _require_probabilities(_: nn.Module, given: tuple[Tensor, ...]) -> None:
    """Raise here, because the assertion on a GPU would end the process, and so all trainings."""
    if not bool(((given[0] >= 0) & (given[0] <= 1)).all()):
        raise ValueError("the outputs of the network are not all between 0 and 1")


def build_lr_scheduler(optimizer: Optimizer, hyperparameters: Hyperparameters) -> LRScheduler | None:
    """Build the LR scheduler, if the spec has one; raises what torch raises for values that it refuses."""
    asked = hyperparameters.lr_scheduler
    if asked is None:
        return None
    if asked.name != SEQUENCE:
        return _single(optimizer, asked, hyperparameters)
    stages = [_single(optimizer, stage, hyperparameters) for stage in asked.of]
    return SequentialLR(optimizer, stages, list(asked.milestones))


def _single(optimizer: Optimizer, asked: LRSchedulerSpec | LRStage, hyperparameters: Hyperparameters) -> LRScheduler:
    if asked.name in LR_FORMULAS:
        return LambdaLR(optimizer, share_after(asked.name, asked.args, hyperparameters.learning_rate))
    lr_scheduler: type[LRScheduler] = getattr(torch.optim.lr_scheduler, LR_SCHEDULES[asked.name].torch_class)
    return lr_scheduler(optimizer, **asked.args)


def step_lr_scheduler(
    lr_scheduler: LRScheduler | None, hyperparameters: Hyperparameters, *, after: str, loss: float | None = None
) -> None:
    """Step the LR scheduler if it steps after this: an "epoch" with its `loss`, or a "step"."""
    asked = hyperparameters.lr_scheduler
    if lr_scheduler is None or asked is None or asked.per != after:
        return
    if LR_SCHEDULES[asked.name].measured:
        lr_scheduler.step(loss)  # type: ignore[arg-type]  # ReduceLROnPlateau
    else:
        lr_scheduler.step()


def update(
    optimizer: Optimizer,
    parameters: Iterable[nn.Parameter],
    hyperparameters: Hyperparameters,
    step: int,
    scaler: GradScaler | None = None,
) -> None:
    """Finish step `step` (from 1): clip the gradients of `parameters` and step the optimizer.

    A warm-up scales the learning rates for this step only. The host does not wait for the device, except with a
    `scaler` of the loss, which leaves out a step whose gradients are infinite.
    """
    if optimizer.param_groups[0].get("fused"):
        _align_gradients(optimizer)
    if scaler is not None:
        scaler.unscale_(optimizer)
    clipping, share = hyperparameters.gradient_clipping, share_of_rate(hyperparameters, step)
    if clipping is not None and clipping.norm is not None:
        clip_grad_norm_(parameters, clipping.norm)
    if clipping is not None and clipping.value is not None:
        clip_grad_value_(parameters, clipping.value)
    if share == 1.0:
        _step(optimizer, scaler)
        return
    rates = [group["lr"] for group in optimizer.param_groups]
    try:
        for group in optimizer.param_groups:
            group["lr"] = group["lr"] * share
        _step(optimizer, scaler)
    finally:
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate


def _align_gradients(optimizer: Optimizer) -> None:
    """Lay out gradients as their weights are: a fused kernel takes nothing else, and those of a gang may differ."""
    for group in optimizer.param_groups:
        for one in group["params"]:
            if one.grad is not None and one.grad.stride() != one.stride():
                one.grad = torch.empty_like(one).copy_(one.grad)


def _step(optimizer: Optimizer, scaler: GradScaler | None) -> None:
    if scaler is None:
        optimizer.step()
    else:
        scaler.step(optimizer)
        scaler.update()


def share_of_rate(hyperparameters: Hyperparameters, step: int) -> float:
    """Share of the learning rate that a step (from 1) uses."""
    return 1.0 if hyperparameters.warm_up is None else hyperparameters.warm_up.factor(step)


def share_after(name: str, args: Mapping[str, Any], learning_rate: float) -> Callable[[int], float]:
    """Return the function of a schedule of `LR_FORMULAS`; the polynomial one needs the learning rate that it scales."""
    given: dict[str, Any] = {argument.name: argument.default for argument in LR_FORMULAS[name].arguments} | dict(args)
    warm_up: int = given["num_warmup_steps"]
    total: int = given.get("num_training_steps", 0)

    def after(steps: int) -> float:
        if steps < warm_up:
            return steps / max(1, warm_up)
        if name == "warmup_constant":
            return 1.0
        if name == "warmup_linear":
            return max(0.0, (total - steps) / max(1, total - warm_up))
        if name == "warmup_cosine":
            done = (steps - warm_up) / max(1, total - warm_up)
            return max(0.0, 0.5 * (1.0 + math.cos(math.pi * given["num_cycles"] * 2.0 * done)))
        end: float = given["lr_end"]
        if steps > total:
            return end / learning_rate
        left = 1 - (steps - warm_up) / (total - warm_up)
        share: float = ((learning_rate - end) * left ** given["power"] + end) / learning_rate
        return share

    return after


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
