"""Optimizer, criterion, LR scheduler and order of samples of a plain script, as an ordinary user writes them.

Shares no code with the engine.
"""

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, SequentialLR

from unifiednn_core.compare.job import ScriptJob


def make_optimizer(job: ScriptJob, module: nn.Module) -> Optimizer:
    """Build the optimizer: first what no group of the job names, then the groups in order; freeze what is frozen."""
    groups: list[dict[str, Any]] = [{"params": []}, *({"params": [], **one["args"]} for one in job.parameter_groups)]
    for name, parameter in module.named_parameters():
        for place, one in enumerate(job.parameter_groups, start=1):
            if any(fnmatchcase(name, pattern) for pattern in one["names"]):
                if one["frozen"]:
                    parameter.requires_grad = False
                else:
                    groups[place]["params"].append(parameter)
                break
        else:
            groups[0]["params"].append(parameter)
    on_gpu = any(parameter.is_cuda for parameter in module.parameters())
    fused = {"fused": True} if job.fast and on_gpu and job.optimizer in ("SGD", "Adam", "AdamW") else {}
    filled = [one for one in groups if one["params"]]
    built: Optimizer = getattr(torch.optim, job.optimizer)(filled, **job.optimizer_args, **fused)
    return built


def autocast_of(job: ScriptJob, device: torch.device) -> AbstractContextManager[object]:
    """Make the context in which the network runs forward."""
    if job.precision == "float32":
        return nullcontext()
    return torch.autocast(device.type, getattr(torch, job.precision))


def with_channels_last(tensor: Tensor) -> Tensor:
    """Put the channels of images last in memory."""
    images = tensor.dim() == 4 and tensor.is_floating_point()
    return tensor.contiguous(memory_format=torch.channels_last) if images else tensor


def make_criterion(job: ScriptJob, targets: Tensor | None) -> nn.Module:
    """Build the criterion of the job; lists among its arguments are tensors, balanced weights come from `targets`."""
    args = {
        name: torch.tensor(value, dtype=torch.float32) if isinstance(value, list) else value
        for name, value in job.criterion_args.items()
    }
    if job.class_weights == "balanced" and targets is not None:
        labels = targets.flatten() if job.ignored_label is None else targets[targets != job.ignored_label]
        counts = labels.bincount().tolist()
        args["weight"] = torch.tensor([len(labels) / (len(counts) * count) for count in counts], dtype=torch.float32)
    built: nn.Module = getattr(nn, job.criterion)(**args)
    return built


def make_order(job: ScriptJob, tensors: Mapping[str, Tensor]) -> Callable[[torch.Generator], Tensor]:
    """Make the function that draws the samples of an epoch, int64 [samples]; `tensors` are those of the data."""
    asked, samples = job.sampler, len(next(iter(tensors.values())))
    if asked is None:
        return lambda generator: torch.randperm(samples, generator=generator)
    if asked["name"] == "balanced":
        classes = tensors["targets"]
        weights = (1.0 / classes.bincount().double())[classes]
        return lambda generator: torch.multinomial(weights, samples, replacement=True, generator=generator)
    ids = tensors[asked["input"] or next(iter(tensors))]
    lengths = ((ids != asked["pad"]) * torch.arange(1, ids.shape[1] + 1)).amax(1)

    def by_length(generator: torch.Generator) -> Tensor:
        order = torch.randperm(samples, generator=generator)
        windows = torch.split(order, asked["window"] * job.batch_size)
        return torch.cat([window[torch.sort(lengths[window], stable=True).indices] for window in windows])

    return by_length


def make_lr_scheduler(job: ScriptJob, optimizer: Optimizer) -> LRScheduler | None:
    """Build the LR scheduler of the job, if it has one."""
    if job.lr_scheduler is None:
        return None
    rate = job.optimizer_args["lr"]
    if job.lr_scheduler != "SequentialLR":
        return _lr_scheduler(optimizer, job.lr_scheduler, job.lr_scheduler_args, rate)
    each = [_lr_scheduler(optimizer, name, args, rate) for name, args in job.lr_scheduler_args["schedulers"]]
    return SequentialLR(optimizer, each, job.lr_scheduler_args["milestones"])


def _lr_scheduler(optimizer: Optimizer, name: str, args: Mapping[str, Any], rate: float) -> LRScheduler:
    if not name.startswith("get_"):
        built: LRScheduler = getattr(torch.optim.lr_scheduler, name)(optimizer, **args)
        return built
    return LambdaLR(optimizer, _factor(name, **args, rate=rate))


def _factor(
    name: str,
    *,
    num_warmup_steps: int,
    rate: float,
    num_training_steps: int = 0,
    num_cycles: float = 0.5,
    lr_end: float = 1e-7,
    power: float = 1.0,
) -> Callable[[int], float]:
    """Return the function of the library transformers of this name."""

    def factor(step: int) -> float:
        if step < num_warmup_steps:
            return float(step) / float(max(1, num_warmup_steps))
        if name == "get_constant_schedule_with_warmup":
            return 1.0
        if name == "get_polynomial_decay_schedule_with_warmup":
            if step > num_training_steps:
                return lr_end / rate
            remaining = 1 - (step - num_warmup_steps) / (num_training_steps - num_warmup_steps)
            return float(((rate - lr_end) * remaining**power + lr_end) / rate)
        length = float(max(1, num_training_steps - num_warmup_steps))
        if name == "get_linear_schedule_with_warmup":
            return max(0.0, float(num_training_steps - step) / length)
        progress = float(step - num_warmup_steps) / length
        return max(0.0, 0.5 * (1.0 + math.cos(math.pi * float(num_cycles) * 2.0 * progress)))

    return factor
