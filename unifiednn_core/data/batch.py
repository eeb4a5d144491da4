"""Batch: the inputs of one step by name, their targets, and what mixup adds."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Mix:
    """A second set of targets. The loss is share * c(outputs, batch.targets) + (1 - share) * c(outputs, targets)."""

    targets: Tensor  # [samples, ...], as `Batch.targets`
    share: Tensor  # a number from 0 to 1, shape []


@dataclass(frozen=True, slots=True)
class Batch:
    """Inputs of one step, in the order of the data set; the first is what a transform takes unless told otherwise."""

    inputs: dict[str, Tensor]  # each [samples, ...]
    targets: Tensor | None = None  # [samples, ...]
    mix: Mix | None = None
