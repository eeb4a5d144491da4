"""Steps an LR scheduler through the whole training beforehand: some fail, or leave all bounds, only late in it."""

import warnings

import torch
from torch import nn

from unifiednn_core.choices import LR_SCHEDULERS
from unifiednn_core.spec import Hyperparameters
from unifiednn_core.training_parts import build_lr_scheduler, build_optimizer

MOST_STEPS = 20_000
LARGEST_RATE = torch.finfo(torch.float32).max
# A weight that every optimizer takes.
_SHAPE = (1, 1)


def late_failure(hyper: Hyperparameters, steps_per_epoch: int) -> str | None:
    """What goes wrong on the way, as the end of a sentence; None where nothing does in the first `MOST_STEPS`."""
    asked = hyper.lr_scheduler
    if asked is None or LR_SCHEDULERS[asked.name].measured:
        return None
    needed = hyper.epochs * (steps_per_epoch if asked.per == "step" else 1)
    optimizer = build_optimizer([nn.Parameter(torch.zeros(_SHAPE))], hyper)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        lr_scheduler = build_lr_scheduler(optimizer, hyper)
        for done in range(min(needed, MOST_STEPS)):
            rate = float(optimizer.param_groups[0]["lr"])
            if not 0 <= rate <= LARGEST_RATE:
                return f"makes the learning rate {rate:g} after {done} of {needed} steps"
            try:
                if lr_scheduler is not None:
                    lr_scheduler.step()
            except (ArithmeticError, RuntimeError, ValueError) as error:
                return f"fails after {done + 1} of {needed} steps ({error})"
    return None
