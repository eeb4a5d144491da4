"""Normalize: minus a mean and divided by a deviation, for each channel."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Generator

from unifiednn_core.data.batch import Batch
from unifiednn_core.data.transforms.base import changed, chosen, constants, refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class Normalize:
    """Each channel (dimension 1) minus its mean and divided by its deviation; one number is for all channels."""

    training_only: ClassVar[bool] = False
    draws: ClassVar[bool] = False
    reads_values: ClassVar[bool] = False
    changes_targets: ClassVar[bool] = False
    input: str | None = None
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __call__(self, batch: Batch, generator: Generator | None) -> Batch:
        """Transform a batch; `Transform` says the rest."""
        name, tensor = chosen(batch, self)
        if not tensor.is_floating_point() or tensor.dim() < 2:
            remedy = "Give the sub-model a scale, such as 1/255 = 0.00392156862745098 for images of bytes."
            raise refusal(self, f"It takes real numbers with channels, but '{name}' has none.", remedy)
        for argument, values in (("mean", self.mean), ("std", self.std)):
            if len(values) not in (1, tensor.shape[1]):
                message = f"'{name}' has {tensor.shape[1]} channels, but {argument} has {len(values)} numbers."
                raise refusal(self, message, "Give one number for each channel.", argument)
        shape = (-1, *[1] * (tensor.dim() - 2))
        mean, std = (constants(values, tensor).view(shape) for values in (self.mean, self.std))
        return changed(batch, name, (tensor - mean) / std)
