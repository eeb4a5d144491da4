"""Windows over the last dimensions: convolutions, their transposes, and pooling."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from unifiednn_core.formats.contracts.contract import Contract, Rule, each, require, rule
from unifiednn_core.formats.contracts.predicates import PLACES, check_count, check_vector, one_type, tensor


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
}
for _dims in (1, 2, 3):
    CONTRACTS |= each(f"conv{_dims}d", _TYPES, _forward(_dims))
    CONTRACTS |= each(f"conv{_dims}d.padding", _TYPES, _named(_dims))
    CONTRACTS |= each(_TRANSPOSED[_dims], _TYPES, _transposed(_dims))
