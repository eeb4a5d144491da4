"""The update that ends a step: gradients are clipped, the optimizer steps with its share of the learning rate."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from torch import nn
from torch.nn.utils import clip_grad_norm_, clip_grad_value_
from torch.optim import Optimizer

from unifiednn_core.spec import GradientClipping, Hyperparameters


def update(
    optimizer: Optimizer, parameters: Iterable[nn.Parameter], hyperparameters: Hyperparameters, step: int
) -> None:
    """Take step `step` (from 1) with the gradients that `parameters` have."""
    clip(parameters, hyperparameters.gradient_clipping)
    with warmed_up(optimizer, share_of_rate(hyperparameters, step)):
        optimizer.step()


def clip(parameters: Iterable[nn.Parameter], asked: GradientClipping | None) -> None:
    """Limit the gradients as asked; nothing waits for the device."""
    if asked is not None and asked.norm is not None:
        clip_grad_norm_(parameters, asked.norm)
    if asked is not None and asked.value is not None:
        clip_grad_value_(parameters, asked.value)


def share_of_rate(hyperparameters: Hyperparameters, step: int) -> float:
    """Share of the learning rate that a step (from 1) is taken with."""
    return 1.0 if hyperparameters.warm_up is None else hyperparameters.warm_up.factor(step)


@contextmanager
def warmed_up(optimizer: Optimizer, share: float) -> Iterator[None]:
    """Let the optimizer have this share of its learning rates; afterwards they are what the LR scheduler made them."""
    if share == 1.0:
        yield
        return
    rates = [group["lr"] for group in optimizer.param_groups]
    for group in optimizer.param_groups:
        group["lr"] = group["lr"] * share
    try:
        yield
    finally:
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
