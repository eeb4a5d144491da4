"""Batch: the inputs of one step by name, their targets, and what mixup adds; and what a transform of it has to be."""

from dataclasses import dataclass
from typing import Protocol

from torch import Generator, Tensor


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

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All of its tensors."""
        others = (self.targets, None if self.mix is None else self.mix.targets)
        return (*self.inputs.values(), *(one for one in others if one is not None))


class Transform(Protocol):
    """A frozen dataclass of its arguments; a call writes into nothing it was given.

    In a CUDA graph it is recorded once: it asks for no value of a tensor, and no shape depends on one, or it says so.
    `unifiednn_core.testing.transforms.check_transform` checks the contract.
    """

    @property
    def input(self) -> str | None:
        """Which input of the batch; None for the first."""

    @property
    def training_only(self) -> bool:
        """Whether evaluation leaves it out. If not, it draws nothing, or makes the targets."""

    @property
    def draws(self) -> bool:
        """Whether it draws random numbers: as many for every batch of a shape."""

    @property
    def reads_values(self) -> bool:
        """Whether it asks the device for a value, so that no CUDA graph can record it."""

    @property
    def changes_targets(self) -> bool:
        """Whether the targets of a batch may be others afterwards, or two for each sample."""

    def __call__(self, batch: Batch, generator: Generator | None) -> Batch:
        """Transform a batch with draws from `generator`; None is torch's default one of the device.

        Raises `BadInput` for a batch that it cannot take.
        """
