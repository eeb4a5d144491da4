"""Random erasing (Zhong et al. 2020): a rectangle of some images is overwritten with one value."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor

from unifiednn_core.data.batch import Batch
from unifiednn_core.data.transforms.base import changed, for_each_sample, images

ATTEMPTS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomErasing:
    """Every sample with probability p. As in torchvision, the first of ten rectangles that fits is taken, if any."""

    training_only: ClassVar[bool] = True
    draws: ClassVar[bool] = True
    reads_values: ClassVar[bool] = False
    changes_targets: ClassVar[bool] = False
    input: str | None = None
    p: float = 0.5
    scale: tuple[float, float] = (0.02, 0.33)
    """Smallest and largest share of the image."""
    ratio: tuple[float, float] = (0.3, 3.3)
    """Smallest and largest height divided by width."""
    value: float = 0.0

    def __call__(self, batch: Batch, generator: Generator | None) -> Batch:
        """Transform a batch; `Transform` says the rest."""
        name, tensor = images(batch, self)
        samples, _, height, width = tensor.shape

        def drawn(*shape: int) -> Tensor:
            return torch.rand(samples, *shape, generator=generator, device=tensor.device)

        wanted = drawn() < self.p
        areas = height * width * between(self.scale, drawn(ATTEMPTS))
        ratios = between((math.log(self.ratio[0]), math.log(self.ratio[1])), drawn(ATTEMPTS)).exp()
        down, across = (areas * ratios).sqrt().round(), (areas / ratios).sqrt().round()
        fits = (down < height) & (across < width)
        first = fits.int().argmax(1, keepdim=True)  # of equal values argmax takes the first
        down, across = down.gather(1, first), across.gather(1, first)
        wanted = wanted & fits.any(1)
        rows = _within(drawn(), down.squeeze(1), height) & for_each_sample(wanted, 2)
        columns = _within(drawn(), across.squeeze(1), width)
        erased = (rows[:, :, None] & columns[:, None, :]).unsqueeze(1)
        return changed(batch, name, tensor.masked_fill(erased, self.value))


def between(bounds: tuple[float, float], drawn: Tensor) -> Tensor:
    """Spread numbers from 0 to 1 over a range."""
    return bounds[0] + (bounds[1] - bounds[0]) * drawn


def _within(drawn: Tensor, length: Tensor, size: int) -> Tensor:
    """Mark [samples, size]: `length` places in a row, of which the first is drawn among all that fit."""
    last = size - length
    start = (drawn * (last + 1)).floor().minimum(last)[:, None]  # a product may be rounded up
    places = torch.arange(size, device=drawn.device)
    return (places >= start) & (places < start + length[:, None])
