"""Colour jitter: random brightness, contrast, saturation and hue, in random order, as in torchvision."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor

from unifiednn_core.data.batch import Batch
from unifiednn_core.data.transforms.base import changed, constants, for_each_sample, images, refusal
from unifiednn_core.data.transforms.random_erasing import between

_GREY = (0.2989, 0.587, 0.114)  # shares of red, green and blue (ITU-R 601-2)
_BRIGHTNESS, _CONTRAST, _SATURATION, _HUE = range(4)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColorJitter:
    """Every sample its own four factors and its own order. Values are from 0 to 1, so it stands before normalize.

    Images of one channel have no saturation and no hue.
    """

    training_only: ClassVar[bool] = True
    draws: ClassVar[bool] = True
    reads_values: ClassVar[bool] = False
    changes_targets: ClassVar[bool] = False
    input: str | None = None
    brightness: float = 0.0
    contrast: float = 0.0
    saturation: float = 0.0
    hue: float = 0.0

    def __call__(self, batch: Batch, generator: Generator | None) -> Batch:
        """Transform a batch; `Transform` says the rest."""
        name, tensor = images(batch, self, real=True)
        samples, channels = tensor.shape[:2]
        if channels not in (1, 3):
            message = f"It takes images of 1 or 3 channels, but '{name}' has {channels}."
            raise refusal(self, message, "Leave this transform out, or choose another input.")
        order = torch.rand(samples, 4, generator=generator, device=tensor.device).argsort(dim=1, stable=True)
        drawn = torch.rand(samples, 4, generator=generator, device=tensor.device)
        *strengths, hue = self.brightness, self.contrast, self.saturation, self.hue
        if channels == 1:
            strengths[_SATURATION] = hue = 0.0
        bounds = [*((max(0.0, 1 - one), 1 + one) for one in strengths), (-hue, hue)]
        factors = torch.stack([between(pair, drawn[:, place]) for place, pair in enumerate(bounds)], 1)
        factors, image = factors.to(tensor.dtype), tensor.contiguous()
        for turn in range(4):
            now = for_each_sample(order[:, turn], 4)
            blended = _blended(image, now, factors) if any(strengths) else image
            turned = _with_hue_turned(image, for_each_sample(factors[:, _HUE], 3)) if hue else image
            image = torch.where(now == _HUE, turned, blended)
        return changed(batch, name, image)


def _blended(image: Tensor, now: Tensor, factors: Tensor) -> Tensor:
    """Blend each image with black, its mean grey or its own grey, as `now` says: a factor of 1 leaves it as it is."""
    grey = image if image.shape[1] == 1 else (image * constants(_GREY, image).view(3, 1, 1)).sum(1, keepdim=True)
    base = torch.where(now == _CONTRAST, grey.mean((1, 2, 3), keepdim=True), grey)
    base = torch.where(now == _BRIGHTNESS, torch.zeros_like(base), base)
    factor = factors.gather(1, now.view(-1, 1).clamp(max=_SATURATION)).view(-1, 1, 1, 1)
    return (factor * image + (1 - factor) * base).clamp(0, 1)


def _with_hue_turned(image: Tensor, turn: Tensor) -> Tensor:
    """Turn the hue by a share of the circle; value and saturation stay."""
    red, green, blue = image.unbind(1)
    value = image.amax(1)
    chroma = value - image.amin(1)
    some = torch.where(chroma == 0, torch.ones_like(chroma), chroma)
    sixths = torch.where(
        value == red,
        (green - blue) / some,
        torch.where(value == green, 2 + (blue - red) / some, 4 + (red - green) / some),
    )
    sixths = sixths + 6 * turn

    def channel(offset: int) -> Tensor:
        place = (offset + sixths).remainder(6)
        return value - chroma * torch.minimum(place, 4 - place).clamp(0, 1)

    return torch.stack([channel(5), channel(3), channel(1)], 1).clamp(0, 1)
