"""Resize: every image to one height and width."""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Generator, Tensor
from torch.nn import functional

from unifiednn_core.data.batch import Batch
from unifiednn_core.data.transforms.base import changed, images, masks

_SMOOTH = ("bilinear", "bicubic")


@dataclass(frozen=True, slots=True, kw_only=True)
class Resize:
    """Images by `torch.nn.functional.interpolate`; masks get the value of the nearest pixel."""

    training_only: ClassVar[bool] = False
    draws: ClassVar[bool] = False
    reads_values: ClassVar[bool] = False
    input: str | None = None
    size: tuple[int, int]
    """Height and width."""
    interpolation: str = "bilinear"
    antialias: bool = True
    masks: bool = False

    @property
    def changes_targets(self) -> bool:
        """Whether the targets are others afterwards."""
        return self.masks

    def __call__(self, batch: Batch, generator: Generator | None) -> Batch:
        """Transform a batch; `Transform` says the rest."""
        smooth = self.interpolation in _SMOOTH
        name, tensor = images(batch, self, real=smooth)
        if smooth:
            resized = functional.interpolate(
                tensor.contiguous(), self.size, mode=self.interpolation, align_corners=False, antialias=self.antialias
            )
        else:
            resized = nearest(tensor, self.size, self.interpolation)
        result = changed(batch, name, resized)
        return replace(result, targets=nearest(masks(batch, self, tensor), self.size)) if self.masks else result


def nearest(tensor: Tensor, size: tuple[int, int], mode: str = "nearest") -> Tensor:
    """Resize the last two dimensions, of any type, to the pixels that `interpolate` takes."""
    for dimension, length in zip((-2, -1), size, strict=True):
        places = torch.arange(tensor.shape[dimension], device=tensor.device, dtype=torch.float32).view(1, 1, -1)
        tensor = tensor.index_select(dimension, functional.interpolate(places, length, mode=mode).view(-1).long())
    return tensor
