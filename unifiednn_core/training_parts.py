"""Optimizer, criterion and LR scheduler of a sub-model: torch's own, with the arguments given and no others."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from unifiednn_core.choices import CRITERIA, LR_SCHEDULERS, OPTIMIZERS
from unifiednn_core.spec import Hyperparameters


def build_optimizer(parameters: Iterable[nn.Parameter], hyperparameters: Hyperparameters) -> Optimizer:
    """Make the optimizer; raises what torch raises for values that it does not take."""
    optimizer = getattr(torch.optim, OPTIMIZERS[hyperparameters.optimizer].torch_class)
    built: Optimizer = optimizer(parameters, lr=hyperparameters.learning_rate, **hyperparameters.optimizer_args)
    return built


def build_criterion(hyperparameters: Hyperparameters) -> nn.Module:
    """Make the criterion, lists among its arguments as tensors; raises what torch raises for values it does not take.

    Weights of classes and the like are buffers of it, which have to follow the network to its device.
    """
    criterion = getattr(nn, CRITERIA[hyperparameters.criterion].torch_class)
    given = {
        name: torch.tensor(value, dtype=torch.float32) if isinstance(value, list) else value
        for name, value in hyperparameters.criterion_args.items()
    }
    built: nn.Module = criterion(**given)
    if isinstance(built, nn.BCELoss):
        built.register_forward_pre_hook(_require_probabilities)
    return built


def _require_probabilities(_: nn.Module, given: tuple[Tensor, ...]) -> None:
    """Refuse what a GPU answers with an assertion, which ends the process and so everybody's training."""
    if not bool(((given[0] >= 0) & (given[0] <= 1)).all()):
        raise ValueError("the outputs of the network are not all between 0 and 1")


def build_lr_scheduler(optimizer: Optimizer, hyperparameters: Hyperparameters) -> LRScheduler | None:
    """Make the LR scheduler, if there is to be one; raises what torch raises for values that it does not take."""
    asked = hyperparameters.lr_scheduler
    if asked is None:
        return None
    lr_scheduler = getattr(torch.optim.lr_scheduler, LR_SCHEDULERS[asked.name].torch_class)
    built: LRScheduler = lr_scheduler(optimizer, **asked.args)
    return built


def step_lr_scheduler(
    lr_scheduler: LRScheduler | None, hyperparameters: Hyperparameters, *, after: str, loss: float | None = None
) -> None:
    """Step the LR scheduler where it steps after this: an "epoch" with its `loss`, or a "step"."""
    asked = hyperparameters.lr_scheduler
    if lr_scheduler is None or asked is None or asked.per != after:
        return
    if LR_SCHEDULERS[asked.name].measured:
        lr_scheduler.step(loss)  # type: ignore[arg-type]  # ReduceLROnPlateau
    else:
        lr_scheduler.step()
