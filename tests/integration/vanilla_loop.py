"""The exactness recipe as a plain PyTorch loop over tensors, and the bits that a training leaves behind.

It knows nothing of the hybrid and its engine; of a sub-model it takes the hyper-parameters alone.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice

import torch
from torch import Tensor, nn, optim
from torch.optim import lr_scheduler as lr_schedulers

from unifiednn_core.spec import Hyperparameters

OPTIMIZERS: dict[str, Callable[..., optim.Optimizer]] = {
    "sgd": optim.SGD,
    "adam": optim.Adam,
    "adamw": optim.AdamW,
    "rmsprop": optim.RMSprop,
    "adagrad": optim.Adagrad,
    "adadelta": optim.Adadelta,
    "nadam": optim.NAdam,
    "radam": optim.RAdam,
}
LR_SCHEDULERS: dict[str, Callable[..., lr_schedulers.LRScheduler]] = {
    "step": lr_schedulers.StepLR,
    "multi_step": lr_schedulers.MultiStepLR,
    "exponential": lr_schedulers.ExponentialLR,
    "cosine": lr_schedulers.CosineAnnealingLR,
    "linear": lr_schedulers.LinearLR,
    "one_cycle": lr_schedulers.OneCycleLR,
}


@dataclass(frozen=True)
class Trained:
    """A network after its training."""

    module: nn.Module
    optimizer: optim.Optimizer
    lr_scheduler: lr_schedulers.LRScheduler | None
    losses: list[float]
    """Of every step, in order."""

    def bits(self) -> dict[str, str]:
        """Everything that training changed, by where it stands: "optimizer.state.0.exp_avg"."""
        return dict(
            chain(
                _bits("weights", dict(self.module.named_parameters())),
                _bits("buffers", dict(self.module.named_buffers())),
                _bits("optimizer", self.optimizer.state_dict()),
                _bits("lr_scheduler", self.lr_scheduler and self.lr_scheduler.state_dict()),
                _bits("losses", self.losses),
            )
        )


def train(module: nn.Module, hyper: Hyperparameters, data: tuple[Tensor, Tensor], steps: int | None = None) -> Trained:
    """Train on (inputs, targets) by cross entropy, all epochs or the given number of steps; nothing is evaluated."""
    inputs, targets = data
    optimizer = OPTIMIZERS[hyper.optimizer](module.parameters(), lr=hyper.learning_rate, **hyper.optimizer_args)
    criterion = nn.CrossEntropyLoss(**hyper.criterion_args)
    asked, lr_scheduler = hyper.lr_scheduler, None
    if asked is not None:
        lr_scheduler = LR_SCHEDULERS[asked.name](optimizer, **asked.args)
    losses = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(hyper.seed or 0)
        for batch, ends_epoch in islice(_batches(len(targets), hyper), steps):
            optimizer.zero_grad(set_to_none=True)
            parts = []
            for part in batch.chunk(hyper.batch_split):
                loss = criterion(module(inputs[part]), targets[part]) * (len(part) / len(batch))
                loss.backward()
                parts.append(loss.detach())
            optimizer.step()
            losses.append(torch.stack(parts).sum().item())
            if asked is not None and lr_scheduler is not None and (ends_epoch or asked.per == "step"):
                lr_scheduler.step()
    return Trained(module, optimizer, lr_scheduler, losses)


def _batches(samples: int, hyper: Hyperparameters) -> Iterator[tuple[Tensor, bool]]:
    """Yield the samples of each batch, and whether it is the last of its epoch."""
    generator = torch.Generator().manual_seed(hyper.seed or 0)
    for _ in range(hyper.epochs):
        order = torch.randperm(samples, generator=generator)
        batches = [order[start : start + hyper.batch_size] for start in range(0, samples, hyper.batch_size)]
        if hyper.drop_last and len(batches[-1]) < hyper.batch_size:
            batches.pop()
        for place, batch in enumerate(batches, start=1):
            yield batch, place == len(batches)


def _bits(where: str, value: object) -> Iterator[tuple[str, str]]:
    """Spell out every bit; refuses what it cannot spell, so that nothing goes uncompared."""
    match value:
        case Tensor():
            tensor = value.detach().contiguous()
            raw = tensor.reshape(-1).view(torch.uint8).numpy().tobytes()
            yield where, f"{tensor.dtype} {list(tensor.shape)} {hashlib.sha256(raw).hexdigest()}"
        case Mapping():
            for key, part in value.items():
                yield from _bits(f"{where}.{key}", part)
        case str() | bool() | int() | None:
            yield where, repr(value)
        case float():
            yield where, value.hex()
        case Sequence():
            yield f"{where}.length", str(len(value))
            for place, part in enumerate(value):
                yield from _bits(f"{where}.{place}", part)
        case _:
            raise TypeError(f"{where} holds a {type(value).__name__}, whose bits are not known here")
