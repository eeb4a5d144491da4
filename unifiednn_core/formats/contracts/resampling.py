"""Images made larger, smaller or padded, and patches of images."""

import math
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from unifiednn_core.formats.contracts.contract import Arguments, Contract, Rule, each, full_name, require, rule
from unifiednn_core.formats.contracts.general import LARGEST
from unifiednn_core.formats.contracts.predicates import PLACES, check_count, one_type, tensor, word

FARTHEST = 1e6
"""The kernels for borders read foreign memory where a position is not a number or out of proportion."""


def _resized(dims: int) -> Rule:
    @rule(
        f"input is [batch, channels, {PLACES[dims]}], the last {dims + 1} not 0; either output_size or "
        f"scale_factors is given, one for each place, finite and above 0; the result is not empty"
    )
    def check(input: Any, output_size: Sequence[int] | None, scale_factors: Sequence[float] | None) -> None:
        given = tensor("input", input, dims + 2)
        require(0 not in given.shape[1:], f"'input' has the shape {list(given.shape)}")
        require((output_size is None) != (scale_factors is None), "either a size or factors are to be given")
        factors, sizes = list(scale_factors or []), list(output_size or [])
        require(len(factors or sizes) == dims, f"there are {len(factors or sizes)} sizes or factors for {dims}")
        require(all(math.isfinite(factor) and 0 < factor < LARGEST for factor in factors), f"the factors are {factors}")
        sizes = sizes or [int(size * factor) for size, factor in zip(given.shape[2:], factors, strict=True)]
        require(min(sizes) >= 1 and max(sizes) < LARGEST, f"the result would be {sizes}")
        check_count(*given.shape[:2], *sizes)

    return check


def _check_padded(given: Tensor, pad: Sequence[int]) -> list[tuple[int, int, int]]:
    """Return size, and padding before and after, of each padded dimension; the last one first."""
    require(len(pad) % 2 == 0 and len(pad) // 2 <= given.dim(), f"'pad' is {list(pad)} for {list(given.shape)}")
    places = list(zip(reversed(given.shape), pad[::2], pad[1::2], strict=False))
    check_count(*given.shape[: given.dim() - len(places)], *(sum(place) for place in places))
    for size, before, after in places:
        require(size + min(before, 0) + min(after, 0) >= 0, f"'pad' is {list(pad)} for {list(given.shape)}")
    return places


@rule("pad has two numbers for each of the last dimensions; negative ones take away no more than there is")
def _constant(self: Any, pad: Sequence[int]) -> None:
    _check_padded(tensor("self", self), pad)


@rule(
    "in the other modes pad is not negative and is for all but the first one or two dimensions, which are not empty; "
    "reflected padding is smaller than the dimension, circular padding not larger"
)
def _modes(self: Tensor, pad: Sequence[int], mode: str, value: float | None) -> None:
    if mode == "constant":
        return
    places, shape = _check_padded(self, pad), list(self.shape)
    require(value in (None, 0), f"'value' is {value} in the mode {mode!r}")
    kept = self.dim() - len(places)
    fits = 1 <= len(places) <= 3 and kept in (1, 2) and 0 not in shape[kept - 1 :]
    require(fits and min(pad) >= 0, f"'pad' is {list(pad)} for {shape}")
    room = {"reflect": -1, "circular": 0}.get(mode)
    for size, before, after in places:
        require(room is None or max(before, after) <= size + room, f"'pad' is {list(pad)} for {shape}")


def _check_lists(**lists: Sequence[int]) -> None:
    for name, values in lists.items():
        require(len(values) == 2 and min(values) >= (0 if name == "padding" else 1), f"'{name}' is {list(values)}")


def _blocks(sizes: Sequence[int], kernel: Any, dilation: Any, padding: Any, stride: Any) -> list[int]:
    """Places of a window along both dimensions."""
    _check_lists(kernel_size=kernel, dilation=dilation, padding=padding, stride=stride)
    places = zip(sizes, kernel, dilation, padding, stride, strict=True)
    counts = [(size + 2 * pad - gap * (width - 1) - 1) // step + 1 for size, width, gap, pad, step in places]
    require(min(counts) >= 1, f"a window has {counts} places in {list(sizes)}")
    return counts


@rule(
    "self is [batch, channels, height, width], the batch may be missing, the others are not 0; kernel_size, dilation "
    "and stride are above 0, padding is not negative; a window has places"
)
def _unfolded(self: Any, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> None:
    given = tensor("self", self, 3, 4)
    require(0 not in given.shape[-3:], f"'self' has the shape {list(given.shape)}")
    blocks = _blocks(given.shape[-2:], kernel_size, dilation, padding, stride)
    check_count(*given.shape[:-2], *kernel_size, *blocks)


@rule(
    "self is [batch, channels * size of a window, places of a window], the batch may be missing; output_size, "
    "kernel_size, dilation and stride are above 0, padding is not negative"
)
def _folded(self: Any, output_size: Any, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> None:
    given = tensor("self", self, 2, 3)
    _check_lists(output_size=output_size)
    blocks = _blocks(output_size, kernel_size, dilation, padding, stride)
    rows, columns = given.shape[-2:]
    fits = rows > 0 and rows % math.prod(kernel_size) == 0 and columns == math.prod(blocks)
    require(fits, f"'self' has the shape {list(given.shape)} for windows of {list(kernel_size)} at {blocks} places")
    check_count(*given.shape[:-2], rows // math.prod(kernel_size), *output_size)


@rule("self is [..., channels, height, width]; upscale_factor is above 0 and its square divides the channels")
def _shuffled(self: Any, upscale_factor: int) -> None:
    given = tensor("self", self)
    fits = given.dim() >= 3 and upscale_factor > 0 and given.shape[-3] % upscale_factor**2 == 0
    require(fits, f"'self' has the shape {list(given.shape)}, the factor is {upscale_factor}")


@rule("self is [..., channels, height, width]; downscale_factor is above 0 and divides height and width")
def _unshuffled(self: Any, downscale_factor: int) -> None:
    given, factor = tensor("self", self), downscale_factor
    fits = given.dim() >= 3 and factor > 0 and given.shape[-2] % factor == given.shape[-1] % factor == 0
    require(fits, f"'self' has the shape {list(given.shape)}, the factor is {factor}")


@rule(
    "input is [batch, channels, height, width], with or without a depth, and grid [batch, ..., 2 or 3], the batch "
    "equal; nothing is empty; interpolation_mode is from 0 to 2 (2, bicubic, without a depth), padding_mode "
    "from 0 to 2 (for 1 and 2, border and reflection, positions are at most a million: their values are looked at in "
    "every call)"
)
def _sampled(input: Any, grid: Any, interpolation_mode: int, padding_mode: int) -> None:
    given, places = tensor("input", input, 4, 5), tensor("grid", grid, input.dim())
    shapes = f"'input' has the shape {list(given.shape)}, 'grid' {list(places.shape)}"
    fits = given.shape[0] == places.shape[0] and places.shape[-1] == given.dim() - 2
    require(fits and 0 not in (*given.shape, *places.shape), shapes)
    require(0 <= interpolation_mode <= 6 - given.dim(), f"'interpolation_mode' is {interpolation_mode}")
    require(0 <= padding_mode <= 2, f"'padding_mode' is {padding_mode}")
    check_count(*given.shape[:2], *places.shape[1:-1])
    if padding_mode and places.device.type != "meta":
        largest = places.detach().abs().max().item()
        require(largest <= FARTHEST, f"a position in 'grid' is {largest:g}")


def _looks_at_positions(arguments: Arguments) -> bool:
    return bool(arguments["padding_mode"])


@rule("size is that of a batch of images (or volumes), above 0; theta is [batch, 2, 3] (or [batch, 3, 4])")
def _affine(theta: Any, size: Sequence[int]) -> None:
    given, dims = tensor("theta", theta, 3), len(size) - 2
    require(dims in (2, 3) and min(size) >= 1, f"'size' is {list(size)}")
    require(tuple(given.shape) == (size[0], dims, dims + 1), f"'theta' has the shape {list(given.shape)}")
    check_count(*size[2:], size[0], dims)


_IMAGES = """
upsample_nearest2d.vec upsample_bilinear2d.vec upsample_bicubic2d.vec _upsample_nearest_exact2d.vec
_upsample_bilinear2d_aa.vec _upsample_bicubic2d_aa.vec
"""
CONTRACTS: dict[str, Contract] = {
    **each("upsample_nearest1d.vec upsample_linear1d.vec _upsample_nearest_exact1d.vec", _resized(1)),
    **each(_IMAGES, _resized(2)),
    **each("upsample_nearest3d.vec upsample_trilinear3d.vec _upsample_nearest_exact3d.vec", _resized(3)),
    full_name("grid_sampler"): Contract((one_type("input", "grid"), _sampled), _looks_at_positions),
    **each("affine_grid_generator", one_type("theta"), _affine),
    **each("constant_pad_nd", _constant),
    **each("pad", word("mode", "constant", "reflect", "replicate", "circular"), _constant, _modes),
    **each("im2col", _unfolded),
    **each("col2im", _folded),
    **each("pixel_shuffle", _shuffled),
    **each("pixel_unshuffle", _unshuffled),
}
