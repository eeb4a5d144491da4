"""Random crop: a window at a random place of the image, which gets a border first."""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Generator
from torch.nn import functional

from unifiednn_core.data.batch import Batch
from unifiednn_core.data.transforms.base import changed, images, masks, refusal, window


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomCrop:
    """Every sample its own window; without `size` it is as large as the image was before the border."""

    training_only: ClassVar[bool] = True
    draws: ClassVar[bool] = True
    reads_values: ClassVar[bool] = False
    input: str | None = None
    size: tuple[int, int] | None = None
    """Height and width."""
    padding: int = 0
    fill: float = 0.0
    """Value of the border."""
    masks: bool = False
    mask_fill: int = 0
    """Value of the border of masks."""

    @property
    def changes_targets(self) -> bool:
        """Whether the targets are others afterwards."""
        return self.masks

    def __call__(self, batch: Batch, generator: Generator | None) -> Batch:
        """Transform a batch; `Transform` says the rest."""
        name, tensor = images(batch, self)
        samples, _, height, width = tensor.shape
        size = self.size or (height, width)
        down, across = height + 2 * self.padding - size[0], width + 2 * self.padding - size[1]
        if down < 0 or across < 0:
            found = f"{[height, width]} with a border of {self.padding}"
            message = f"It cuts {list(size)} out of '{name}', which is {found}."
            raise refusal(self, message, "Give a smaller size, or more padding.", "size")
        tops = torch.randint(down + 1, (samples,), generator=generator, device=tensor.device)
        lefts = torch.randint(across + 1, (samples,), generator=generator, device=tensor.device)
        border = [self.padding] * 4
        cut = window(functional.pad(tensor, border, value=self.fill), tops, lefts, size)
        result = changed(batch, name, cut)
        if not self.masks:
            return result
        wide = functional.pad(masks(batch, self, tensor), border, value=self.mask_fill)
        return replace(result, targets=window(wide.unsqueeze(1), tops, lefts, size).squeeze(1))
