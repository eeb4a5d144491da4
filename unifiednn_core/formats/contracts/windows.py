"""Windows over the last dimensions: convolutions, their transposes, pooling, resized and padded images, patches."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from unifiednn_core.formats.contracts.contract import Arguments, Contract, Rule, each, full_name, require, rule
from unifiednn_core.formats.contracts.general import LARGEST
from unifiednn_core.formats.contracts.predicates import PLACES, check_count, check_vector, one_type, tensor, word


def _check_input(dims: int, value: Any) -> Tensor:
    given = tensor("self", value, dims + 1, dims + 2)
    require(0 not in given.shape[-dims - 1 :], f"'self' has the shape {list(given.shape)}")
    return given


def _check_windows(
    dims: int,
    value: Any,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
) -> None:
    given = _check_input(dims, value)
    steps = list(stride) or list(kernel_size)
    for name, values in (("kernel_size", kernel_size), ("stride", steps), ("dilation", dilation)):
        require(len(values) == dims and min(values) >= 1, f"'{name}' is {list(values)}")
    require(len(padding) == dims and min(padding) >= 0, f"'padding' is {list(padding)}")
    sizes = []
    for size, width, step, pad, gap in zip(given.shape[-dims:], kernel_size, steps, padding, dilation, strict=True):
        reach = gap * (width - 1) + 1
        require(2 * pad <= reach, f"'padding' is {list(padding)} for windows of {list(kernel_size)}")
        places = (size + 2 * pad - reach + (step - 1 if ceil_mode else 0)) // step + 1
        if ceil_mode and (places - 1) * step >= size + pad:
            places -= 1
        sizes.append(places)
    require(min(sizes) >= 1, f"'self' {list(given.shape)} would give places {sizes}")
    check_count(*given.shape[:-dims], *sizes)


_WINDOWS = (
    "self is [batch, channels, {places}], the last {count} not 0, the batch may be missing; {steps} "
    "are above 0; padding is from 0 to half of a window; the result is not empty"
)


def _maximum(dims: int) -> Rule:
    @rule(_WINDOWS.format(places=PLACES[dims], count=dims + 1, steps="kernel_size, stride and dilation"))
    def check(self: Any, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> None:
        _check_windows(dims, self, kernel_size, stride, padding, dilation, ceil_mode)

    return check


def _average(dims: int) -> Rule:
    @rule(_WINDOWS.format(places=PLACES[dims], count=dims + 1, steps="kernel_size and stride"))
    def check(self: Any, kernel_size: Any, stride: Any, padding: Any, ceil_mode: bool) -> None:
        _check_windows(dims, self, kernel_size, stride, padding, [1] * dims, ceil_mode)

    return check


@rule("divisor_override is not 0")
def _divisor(divisor_override: int | None) -> None:
    require(divisor_override != 0, "'divisor_override' is 0")


def _adaptive(dims: int) -> Rule:
    @rule(
        f"self is [batch, channels, {PLACES[dims]}], the last {dims + 1} not 0, the batch may be missing; "
        "output_size is above 0"
    )
    def check(self: Any, output_size: Sequence[int]) -> None:
        given = _check_input(dims, self)
        require(len(output_size) == dims and min(output_size) >= 1, f"'output_size' is {list(output_size)}")
        check_count(*given.shape[:-dims], *output_size)

    return check


def _unpooled(dims: int) -> Rule:
    @rule(
        f"self is [batch, channels, {PLACES[dims]}], not empty, the batch may be missing; indices is int64, of its "
        "shape; output_size is above 0; the kernel checks the range of indices at every call"
    )
    def check(self: Any, indices: Any, output_size: Sequence[int]) -> None:
        given, places = _check_input(dims, self), tensor("indices", indices)
        fits = places.dtype is torch.int64 and places.shape == given.shape and given.numel() > 0
        require(fits, f"'indices' is {places.dtype} {list(places.shape)} for {list(given.shape)}")
        require(len(output_size) == dims and min(output_size) >= 1, f"'output_size' is {list(output_size)}")
        check_count(*given.shape[:-dims], *output_size)

    return check


@rule("stride is above 0, padding not negative")
def _steps(stride: Sequence[int], padding: Sequence[int]) -> None:
    fits = len(stride) == len(padding) == 3 and min(stride) >= 1 and min(padding) >= 0
    require(fits, f"'stride' is {list(stride)}, 'padding' {list(padding)}")


def _check_ranks(dims: int, input: Any, weight: Any, groups: int) -> tuple[Tensor, Tensor, int]:
    """Return both tensors and the channels of the input."""
    given, kernel = tensor("input", input, dims + 1, dims + 2), tensor("weight", weight, dims + 2)
    require(groups > 0 and 0 not in kernel.shape, f"'weight' has the shape {list(kernel.shape)}, 'groups' is {groups}")
    return given, kernel, given.shape[-dims - 1]


def _check_lists(dims: int, **lists: Sequence[int]) -> None:
    for name, values in lists.items():
        least = 0 if "padding" in name else 1
        require(len(values) == dims and min(values) >= least, f"'{name}' is {list(values)}")


def _check_result(given: Tensor, dims: int, channels: int, sizes: list[int]) -> None:
    require(min(sizes) >= 1, f"the input {list(given.shape)} would give places {sizes}")
    check_count(*given.shape[: -dims - 1], channels, *sizes)


def _check_forward(
    dims: int,
    input: Any,
    weight: Any,
    bias: Any,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> None:
    given, kernel, channels = _check_ranks(dims, input, weight, groups)
    shapes = f"'input' {list(given.shape)}, 'weight' {list(kernel.shape)} in {groups} groups"
    require(channels == kernel.shape[1] * groups and kernel.shape[0] % groups == 0, f"the channels differ: {shapes}")
    check_vector("bias", bias, kernel.shape[0])
    _check_lists(dims, stride=stride, padding=padding, dilation=dilation)
    places = zip(given.shape[-dims:], kernel.shape[2:], stride, padding, dilation, strict=True)
    sizes = [(size + 2 * pad - gap * (width - 1) - 1) // step + 1 for size, width, step, pad, gap in places]
    _check_result(given, dims, kernel.shape[0], sizes)


_SHAPES = (
    "input is [batch, channels, {places}], the batch may be missing; weight {weight}; bias has one entry for each "
    "channel of the result and is contiguous; stride and dilation are above 0, {padding}; the result is not empty"
)
_FORWARD = "is [channels of the result, channels / groups, {places}] and the groups divide both"
_TRANSPOSE = "is [channels, channels of the result / groups, {places}] and the groups divide the channels"


def _text(dims: int, weight: str, padding: str) -> str:
    places = PLACES[dims]
    return _SHAPES.format(places=places, weight=weight.format(places=places), padding=padding)


def _forward(dims: int) -> Rule:
    @rule(
        _SHAPES.format(
            places=PLACES[dims], weight=_FORWARD.format(places=PLACES[dims]), padding="padding is not negative"
        )
    )
    def check(input: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> None:
        _check_forward(dims, input, weight, bias, stride, padding, dilation, groups)

    return check


def _named(dims: int) -> Rule:
    padding = "padding is 'valid', or 'same' with stride 1"

    @rule(_text(dims, _FORWARD, padding))
    def check(input: Any, weight: Any, bias: Any, stride: Any, padding: str, dilation: Any, groups: int) -> None:
        same = padding == "same" and set(stride) == {1}
        require(same or padding == "valid", f"'padding' is {padding!r} with stride {list(stride)}")
        _, kernel, _ = _check_ranks(dims, input, weight, groups)
        _check_lists(dims, stride=stride, dilation=dilation)
        # As much on both sides as 'same' adds on the larger one.
        reaches = [gap * (size - 1) for size, gap in zip(kernel.shape[2:], dilation, strict=True)]
        pads = [(reach + 1) // 2 if same else 0 for reach in reaches]
        _check_forward(dims, input, weight, bias, stride, pads, dilation, groups)

    return check


def _transposed(dims: int) -> Rule:
    padding = "padding is not negative, output_padding below stride or dilation"

    @rule(_text(dims, _TRANSPOSE, padding))
    def check(
        input: Any, weight: Any, bias: Any, stride: Any, padding: Any, output_padding: Any, groups: int, dilation: Any
    ) -> None:
        given, kernel, channels = _check_ranks(dims, input, weight, groups)
        shapes = f"'input' {list(given.shape)}, 'weight' {list(kernel.shape)} in {groups} groups"
        require(channels == kernel.shape[0] and channels % groups == 0, f"the channels differ: {shapes}")
        check_vector("bias", bias, kernel.shape[1] * groups)
        _check_lists(dims, stride=stride, padding=padding, output_padding=output_padding, dilation=dilation)
        require(0 not in given.shape[-dims:], f"'input' has the shape {list(given.shape)}")
        for more, step, gap in zip(output_padding, stride, dilation, strict=True):
            require(more < max(step, gap), f"'output_padding' is {list(output_padding)}")
        places = zip(given.shape[-dims:], kernel.shape[2:], stride, padding, dilation, output_padding, strict=True)
        sizes = [
            (size - 1) * step - 2 * pad + gap * (width - 1) + more + 1 for size, width, step, pad, gap, more in places
        ]
        _check_result(given, dims, kernel.shape[1] * groups, sizes)

    return check


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


def _blocks(sizes: Sequence[int], kernel: Any, dilation: Any, padding: Any, stride: Any) -> list[int]:
    """Places of a window along both dimensions."""
    _check_lists(2, kernel_size=kernel, dilation=dilation, padding=padding, stride=stride)
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
    _check_lists(2, output_size=output_size)
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

_TYPES = one_type("input", "weight", "bias")
_TRANSPOSED = {1: "conv_transpose1d", 2: "conv_transpose2d.input", 3: "conv_transpose3d.input"}
CONTRACTS: dict[str, Contract] = {
    **each("avg_pool1d", _average(1)),
    **each("avg_pool2d", _average(2), _divisor),
    **each("avg_pool3d", _average(3), _divisor),
    **each("max_pool1d max_pool1d_with_indices", _maximum(1)),
    **each("max_pool2d max_pool2d_with_indices", _maximum(2)),
    **each("max_pool3d max_pool3d_with_indices", _maximum(3)),
    **each("adaptive_avg_pool1d adaptive_max_pool1d", _adaptive(1)),
    **each("adaptive_avg_pool2d adaptive_max_pool2d", _adaptive(2)),
    **each("adaptive_avg_pool3d adaptive_max_pool3d", _adaptive(3)),
    **each("max_unpool2d", _unpooled(2)),
    **each("max_unpool3d", _unpooled(3), _steps),
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
for _dims in (1, 2, 3):
    CONTRACTS |= each(f"conv{_dims}d", _TYPES, _forward(_dims))
    CONTRACTS |= each(f"conv{_dims}d.padding", _TYPES, _named(_dims))
    CONTRACTS |= each(_TRANSPOSED[_dims], _TYPES, _transposed(_dims))
