"""Horizontal flip: some images from right to left."""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Generator

from unifiednn_core.data.batch import Batch
from unifiednn_core.data.transforms.base import changed, for_each_sample, images, masks


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomHorizontalFlip:
    """Every sample with probability p."""

    training_only: ClassVar[bool] = True
    draws: ClassVar[bool] = True
    reads_values: ClassVar[bool] = False
    input: str | None = None
    p: float = 0.5
    masks: bool = False

    @property
    def changes_targets(self) -> bool:
        """Whether the targets are others afterwards."""
        return self.masks

    def __call__(self, batch: Batch, generator: Generator | None) -> Batch:
        """Transform a batch; `Transform` says the rest."""
        name, tensor = images(batch, self)
        flipped = torch.rand(len(tensor), generator=generator, device=tensor.device) < self.p
        result = changed(batch, name, torch.where(for_each_sample(flipped, 4), tensor.flip(-1), tensor))
        if not self.masks:
            return result
        targets = masks(batch, self, tensor)
        return replace(result, targets=torch.where(for_each_sample(flipped, 3), targets.flip(-1), targets))
