"""Slow transforms: a loop over samples and pixels each, from the numbers that the generated page says are drawn."""

import colorsys
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from PIL import Image
from torch import Generator, Tensor

from unifiednn_core.data.batch import Batch, Mix
from unifiednn_core.spec.transforms import TRANSFORMS

Outcome = tuple[list[Tensor], list[Tensor] | None]
"""Input and target of each sample; None if the targets stay."""


def drawn(name: str, arguments: dict[str, Any], x: Tensor, generator: Generator) -> list[Tensor]:
    """Run the calls of the table, as they are written there."""
    given = {argument.name: argument.default for argument in TRANSFORMS[name].arguments} | arguments
    sizes = dict(zip("nchw" if x.dim() == 4 else "nl", x.shape, strict=True))
    given["size"] = given.get("size") or x.shape[-2:]

    place = {"device": generator.device}

    def seeded(call: Callable[..., Tensor], **more: Any) -> Callable[..., Tensor]:
        return lambda *shape: call(*shape, generator=generator, **more)

    known: dict[str, Any] = {name: seeded(getattr(torch, name), **place) for name in ("rand", "randint")}
    known |= {"_sample_dirichlet": seeded(torch._sample_dirichlet), "full": partial(torch.full, **place)}
    return [eval(call, {**known, **given, **sizes}).cpu() for call, _ in TRANSFORMS[name].draws]  # noqa: S307


def normalize(x: Tensor, targets: Any, draws: list[Tensor], mean: list[float], std: list[float]) -> Outcome:
    channels = x.shape[1]
    mean, std = (one * channels if len(one) == 1 else one for one in (mean, std))
    rows = [[(one[c] - torch.tensor(mean[c])) / torch.tensor(std[c]) for c in range(channels)] for one in x]
    return [torch.stack(row) for row in rows], None


def resize(
    x: Tensor, targets: Any, draws: list[Tensor], size: list[int], interpolation: str = "bilinear", masks: bool = False
) -> Outcome:
    def nearest(one: Tensor, shift: float) -> Tensor:
        places = [
            [math.floor((i + shift) * old / new) for i in range(new)]
            for old, new in zip(one.shape[-2:], size, strict=True)
        ]
        return torch.stack([torch.stack([one[..., r, c] for c in places[1]], -1) for r in places[0]], -2)

    def smooth(one: Tensor) -> Tensor:
        kind = Image.Resampling.BILINEAR if interpolation == "bilinear" else Image.Resampling.BICUBIC
        planes = [Image.fromarray(plane.numpy()).resize((size[1], size[0]), kind) for plane in one]
        flat = [
            torch.tensor([plane.getpixel((c, r)) for r in range(size[0]) for c in range(size[1])]) for plane in planes
        ]
        return torch.stack(flat).view(-1, *size)

    if interpolation.startswith("nearest"):
        images = [nearest(one, 0.5 if interpolation == "nearest-exact" else 0.0) for one in x]
    else:
        images = [smooth(one) for one in x]
    return images, [nearest(one, 0.0) for one in targets] if masks else None


def random_crop(
    x: Tensor,
    targets: Any,
    draws: list[Tensor],
    size: Any = None,
    padding: int = 0,
    fill: float = 0.0,
    masks: bool = False,
    mask_fill: int = 0,
) -> Outcome:
    height, width = size or x.shape[-2:]

    def cut(plane: Tensor, top: int, left: int, border: float) -> Tensor:
        result = torch.full((height, width), border, dtype=plane.dtype)
        for r in range(height):
            for c in range(width):
                row, column = top + r - padding, left + c - padding
                if 0 <= row < plane.shape[0] and 0 <= column < plane.shape[1]:
                    result[r, c] = plane[row, column]
        return result

    places = list(zip(draws[0].tolist(), draws[1].tolist(), strict=True))
    images = [torch.stack([cut(plane, *place, fill) for plane in one]) for one, place in zip(x, places, strict=True)]
    return images, [cut(one, *p, mask_fill) for one, p in zip(targets, places, strict=True)] if masks else None


def horizontal_flip(x: Tensor, targets: Any, draws: list[Tensor], p: float = 0.5, masks: bool = False) -> Outcome:
    def flipped(one: Tensor) -> Tensor:
        return torch.stack([one[..., c] for c in reversed(range(one.shape[-1]))], -1)

    which = [u < p for u in draws[0].tolist()]
    images = [flipped(one) if do else one for one, do in zip(x, which, strict=True)]
    return images, [flipped(one) if do else one for one, do in zip(targets, which, strict=True)] if masks else None


def random_erasing(
    x: Tensor,
    targets: Any,
    draws: list[Tensor],
    p: float = 0.5,
    scale: Any = (0.02, 0.33),
    ratio: Any = (0.3, 3.3),
    value: float = 0.0,
) -> Outcome:
    def erased(one: Tensor, u: float, a: list[float], b: list[float], s: float, t: float) -> Tensor:
        height, width = one.shape[-2:]
        for share, skew in zip(a, b, strict=True):
            area = height * width * (scale[0] + (scale[1] - scale[0]) * share)
            aspect = math.exp(math.log(ratio[0]) + (math.log(ratio[1]) - math.log(ratio[0])) * skew)
            down, across = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if u < p and down < height and across < width:
                top, left = math.floor(s * (height - down + 1)), math.floor(t * (width - across + 1))
                one = one.clone()
                one[:, top : top + down, left : left + across] = value
                break
        return one

    rows = zip(x, *(draw.tolist() for draw in draws), strict=True)
    return [erased(*row) for row in rows], None


def color_jitter(x: Tensor, targets: Any, draws: list[Tensor], **strengths: float) -> Outcome:
    kinds = ("brightness", "contrast", "saturation", "hue")
    strength = [strengths.get(kind, 0.0) for kind in kinds]

    def grey(pixel: list[float]) -> float:
        return pixel[0] if len(pixel) == 1 else 0.2989 * pixel[0] + 0.587 * pixel[1] + 0.114 * pixel[2]

    def jittered(one: Tensor, keys: list[float], shares: list[float]) -> Tensor:
        pixels = one.double().flatten(1).T.tolist()
        for step in sorted(range(4), key=keys.__getitem__):
            by, share = strength[step], shares[step]
            if not by or (len(one) == 1 and step > 1):
                continue
            low, high = (-by, by) if step == 3 else (max(0.0, 1 - by), 1 + by)
            factor = low + (high - low) * share
            mean = sum(map(grey, pixels)) / len(pixels)
            for place, pixel in enumerate(pixels):
                if step == 3:
                    h, s, v = colorsys.rgb_to_hsv(*pixel)
                    pixels[place] = list(colorsys.hsv_to_rgb((h + factor) % 1, s, v))
                else:
                    base = (0.0, mean, grey(pixel))[step]
                    pixels[place] = [min(1.0, max(0.0, factor * one + (1 - factor) * base)) for one in pixel]
        return torch.tensor(pixels).T.reshape(one.shape)

    return [jittered(*row) for row in zip(x, draws[0].tolist(), draws[1].tolist(), strict=True)], None


def mixup(x: Tensor, targets: Any, draws: list[Tensor], alpha: float = 1.0) -> Outcome:
    s = draws[0]
    return [s * x[i] + (1 - s) * x[i - 1] for i in range(len(x))], None


def token_masking(
    x: Tensor,
    targets: Any,
    draws: list[Tensor],
    mask: int,
    p: float = 0.15,
    masked: float = 0.8,
    random: float = 0.1,
    vocabulary: int = 0,
    special: Any = (),
    predict: bool = True,
) -> Outcome:
    ids, wanted = x.clone(), torch.full_like(x, -100)
    for i in range(len(x)):
        for j in range(x.shape[1]):
            if draws[0][i, j] < p and x[i, j] not in special:
                wanted[i, j] = x[i, j]
                if draws[1][i, j] < masked:
                    ids[i, j] = mask
                elif draws[1][i, j] >= 1 - random:
                    ids[i, j] = draws[2][i, j]
    return list(ids), list(wanted) if predict else None


def trim(
    x: Tensor, targets: Any, draws: list[Tensor], pad: int = 0, others: bool = False, targets_too: bool = False
) -> Outcome:
    longest = max([1, *(place + 1 for row in x.tolist() for place, one in enumerate(row) if one != pad)])
    return [row[:longest] for row in x], [row[:longest] for row in targets] if targets_too else None


def transformed(name: str, arguments: dict[str, Any], batch: Batch, generator: Generator) -> Batch:
    """What the transform should give."""
    taken = str(arguments.get("input", next(iter(batch.inputs))))
    given = {argument: value for argument, value in arguments.items() if argument != "input"}
    x, targets = batch.inputs[taken], batch.targets
    draws = drawn(name, given, x, generator)
    if "targets" in given:
        given["targets_too"] = given.pop("targets")
    images, changed = globals()[name](x, targets, draws, **given)
    inputs = {**batch.inputs, taken: torch.stack(images)}
    if given.get("others"):
        inputs = {key: one[:, : inputs[taken].shape[1]] for key, one in inputs.items()}
    mix = Mix(torch.stack([targets[i - 1] for i in range(len(x))]), draws[0]) if name == "mixup" else None  # type: ignore[index]
    return Batch(inputs, targets if changed is None else torch.stack(changed), mix)
