"""Pooling: windows over the last dimensions."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from unifiednn_core.formats.contracts.contract import Contract, Rule, each, require, rule
from unifiednn_core.formats.contracts.predicates import PLACES, check_count, tensor


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
