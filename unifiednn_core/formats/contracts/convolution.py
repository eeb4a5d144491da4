"""Convolutions and their transposes."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from unifiednn_core.formats.contracts.contract import Contract, Rule, each, require, rule
from unifiednn_core.formats.contracts.predicates import PLACES, check_count, check_vector, one_type, tensor


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
CONTRACTS: dict[str, Contract] = {}
for _dims in (1, 2, 3):
    CONTRACTS |= each(f"conv{_dims}d", _TYPES, _forward(_dims))
    CONTRACTS |= each(f"conv{_dims}d.padding", _TYPES, _named(_dims))
    CONTRACTS |= each(_TRANSPOSED[_dims], _TYPES, _transposed(_dims))
