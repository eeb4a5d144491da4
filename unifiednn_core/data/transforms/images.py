"""Transforms of images, and of other real numbers."""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Generator, Tensor
from torch.nn import functional

from unifiednn_core.data.batch import Batch, Mix
from unifiednn_core.data.transforms.base import (
    OfInput,
    changed,
    chosen,
    constants,
    for_each_sample,
    images,
    masks,
    refusal,
    window,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Normalize(OfInput):
    """Each channel (dimension 1) minus its mean and divided by its deviation; one number is for all channels."""

    training_only: ClassVar[bool] = False
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


_SMOOTH = ("bilinear", "bicubic")


@dataclass(frozen=True, slots=True, kw_only=True)
class Resize(OfInput):
    """Images by `torch.nn.functional.interpolate`; masks get the value of the nearest pixel."""

    training_only: ClassVar[bool] = False
    size: tuple[int, int]
    """Height and width."""
    interpolation: str = "bilinear"
    antialias: bool = True
    masks: bool = False

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


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomCrop(OfInput):
    """Every sample its own window; without `size` it is as large as the image was before the border."""

    training_only: ClassVar[bool] = True
    draws: ClassVar[bool] = True
    size: tuple[int, int] | None = None
    """Height and width."""
    padding: int = 0
    fill: float = 0.0
    """Value of the border."""
    masks: bool = False
    mask_fill: int = 0
    """Value of the border of masks."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomHorizontalFlip(OfInput):
    """Every sample with probability p."""

    training_only: ClassVar[bool] = True
    draws: ClassVar[bool] = True
    p: float = 0.5
    masks: bool = False

    def __call__(self, batch: Batch, generator: Generator | None) -> Batch:
        """Transform a batch; `Transform` says the rest."""
        name, tensor = images(batch, self)
        flipped = torch.rand(len(tensor), generator=generator, device=tensor.device) < self.p
        result = changed(batch, name, torch.where(for_each_sample(flipped, 4), tensor.flip(-1), tensor))
        if not self.masks:
            return result
        targets = masks(batch, self, tensor)
        return replace(result, targets=torch.where(for_each_sample(flipped, 3), targets.flip(-1), targets))


ATTEMPTS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomErasing(OfInput):
    """Every sample with probability p. As in torchvision, the first of ten rectangles that fits is taken, if any."""

    training_only: ClassVar[bool] = True
    draws: ClassVar[bool] = True
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


_GREY = (0.2989, 0.587, 0.114)  # shares of red, green and blue (ITU-R 601-2)
_BRIGHTNESS, _CONTRAST, _SATURATION, _HUE = range(4)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColorJitter(OfInput):
    """Every sample its own four factors and its own order. Values are from 0 to 1, so it stands before normalize.

    Images of one channel have no saturation and no hue.
    """

    training_only: ClassVar[bool] = True
    draws: ClassVar[bool] = True
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


@dataclass(frozen=True, slots=True, kw_only=True)
class MixUp(OfInput):
    """One share for the whole batch, from Beta(alpha, alpha); as in torchvision the neighbour is the sample before."""

    training_only: ClassVar[bool] = True
    draws: ClassVar[bool] = True
    alpha: float = 1.0

    @property
    def changes_targets(self) -> bool:
        """Whether it changes the targets."""
        return True

    def __call__(self, batch: Batch, generator: Generator | None) -> Batch:
        """Transform a batch; `Transform` says the rest."""
        name, tensor = chosen(batch, self)
        if not tensor.is_floating_point():
            remedy = "Give the sub-model a scale, or choose another input; ids cannot be mixed."
            raise refusal(self, f"It mixes real numbers, but '{name}' has integers.", remedy)
        if batch.targets is None:
            raise refusal(self, "It mixes the losses of two targets, but there are none.", "Leave it out.")
        alphas = torch.full((2,), self.alpha, dtype=torch.float32, device=tensor.device)
        share = torch._sample_dirichlet(alphas, generator)[0]  # what torch.distributions.Beta draws
        kept = share.to(tensor.dtype)
        mixed = kept * tensor + (1 - kept) * tensor.roll(1, 0)
        return replace(changed(batch, name, mixed), mix=Mix(batch.targets.roll(1, 0), share))
