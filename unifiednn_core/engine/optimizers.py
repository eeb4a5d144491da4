"""Optimizer, criterion and LR scheduler as the hyper-parameters ask for them, and the update at the end of a step."""

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
