"""Synthetic intermediate labels: fixed random codes of classes, from which the parts of a network learn alone.

A part before a cut learns to put out the code of each sample's class, by its mean squared error; a part behind a cut
gets the code instead of what the part before it would put out. So no part waits for another, and nothing passes between
them. After Karadag and Topaloglu, "Partitioned Neural Network Training via Synthetic Intermediate Labels"
(arXiv 2403.11204), whose text leaves the law of the codes open: here each entry is one of two values with equal chance.
"""

import math
from dataclasses import dataclass, field, replace

import torch
from torch import Generator, Tensor

from unifiednn_core.data.batch import Batch

LEAST_DISTANCE = 0.3
"""Share of the entries in which two codes have to differ; half of them do on average."""
TRIES = 1_000
_GOLDEN = 0x9E3779B97F4A7C15
"""Makes seeds of the cuts of one network differ."""


def codes(classes: int, shape: tuple[int, ...], *, seed: int, cut: int, least: float, scale: float) -> Tensor:
    """Codes of all classes behind cut number `cut` (from 1), float32 [classes, *shape].

    Their entries are `scale` and `least * scale` with equal chance, drawn from a generator with this seed alone, class
    by class: codes of the first classes do not depend on how many there are. A code that is too close to an earlier one
    is drawn again, and the most distant one is taken if there is none.
    """
    generator = torch.Generator().manual_seed((seed + cut * _GOLDEN) % 2**63)
    width = math.prod(shape)
    bits = torch.empty(classes, width, dtype=torch.bool)
    for place in range(classes):
        most = -1
        for _ in range(TRIES):
            drawn = torch.randint(0, 2, (width,), generator=generator, dtype=torch.uint8).bool()
            nearest = int((bits[:place] != drawn).sum(1).min()) if place else width
            if nearest > most:
                most, bits[place] = nearest, drawn
            if nearest >= LEAST_DISTANCE * width:
                break
    return torch.where(bits, scale, least * scale).reshape(classes, *shape)


@dataclass(frozen=True, slots=True)
class _Table:
    """The codes, on each device that asks for them."""

    rows: Tensor
    placed: dict[torch.device, Tensor] = field(default_factory=dict, compare=False)

    def of(self, classes: Tensor) -> Tensor:
        """Codes of some classes, a new tensor."""
        device = classes.device
        if device not in self.placed:
            self.placed[device] = self.rows.to(device)
        return self.placed[device].index_select(0, classes)


@dataclass(frozen=True, slots=True)
class CodedTargets:
    """A transform: the targets become the codes of their classes."""

    table: _Table
    input: str | None = None
    training_only: bool = False
    draws: bool = False
    reads_values: bool = False
    changes_targets: bool = True

    @classmethod
    def of(cls, rows: Tensor) -> "CodedTargets":
        """Codes [classes, ...]."""
        return cls(_Table(rows))

    def __call__(self, batch: Batch, generator: Generator | None) -> Batch:
        """Replace the targets, int64 [samples]."""
        return batch if batch.targets is None else replace(batch, targets=self.table.of(batch.targets))


@dataclass(frozen=True, slots=True)
class CodedInputs:
    """A transform: the input becomes the code of each sample's class, with noise in training."""

    table: _Table
    noise: float
    """Standard deviation."""
    least: float
    """No input is below this."""
    training_only: bool = False
    input: str | None = None
    reads_values: bool = False
    changes_targets: bool = False

    @classmethod
    def of(cls, rows: Tensor, noise: float, least: float) -> "tuple[CodedInputs, ...]":
        """The codes [classes, ...] of all batches, then their noise, which is of training alone."""
        table = _Table(rows)
        return (cls(table, 0.0, least), *([cls(table, noise, least, training_only=True)] if noise else []))

    @property
    def draws(self) -> bool:
        """Only noise is drawn."""
        return self.noise > 0

    def __call__(self, batch: Batch, generator: Generator | None) -> Batch:
        """Replace the one input by codes of the targets, int64 [samples], or add noise to them."""
        [name] = batch.inputs
        if batch.targets is None:
            return batch
        if not self.noise:
            return replace(batch, inputs={name: self.table.of(batch.targets)})
        coded = batch.inputs[name]
        drawn = torch.randn(coded.shape, generator=generator, device=coded.device)
        return replace(batch, inputs={name: (coded + self.noise * drawn).clamp_min(self.least)})
