"""Operators on one entry at a time, of one tensor or of several that are broadcast."""

from typing import Any

import torch
from torch import Tensor

from unifiednn_core.formats.contracts.contract import Contract, each, require, rule
from unifiednn_core.formats.contracts.predicates import (
    broadcast,
    broadcast_shape,
    check_count,
    check_dim,
    one_type,
    shape_of,
    tensor,
    word,
)

# Each entry of the result is computed from one entry and numbers.
_SINGLE = """
relu relu_ relu6 relu6_ leaky_relu leaky_relu_ elu elu_ selu selu_ celu celu_ silu silu_ mish mish_ hardtanh hardtanh_
hardswish hardswish_ hardsigmoid hardsigmoid_ softplus softshrink hardshrink log_sigmoid sigmoid sigmoid_ tanh tanh_
threshold threshold_ add.Scalar add_.Scalar sub.Scalar rsub.Scalar mul.Scalar mul_.Scalar div.Scalar remainder.Scalar
pow.Tensor_Scalar pow.Scalar neg abs sign exp expm1 log log1p log2 sqrt rsqrt reciprocal square sin cos tan atan sinh
cosh erf floor ceil round trunc clamp_min clamp_max eq.Scalar ne.Scalar lt.Scalar le.Scalar gt.Scalar ge.Scalar
logical_not bitwise_not isnan isinf isfinite nan_to_num fill_.Scalar zero_
"""
_CHOICES = "where.self where.ScalarOther where.ScalarSelf where.Scalar"
_PAIRS = """
add.Tensor add_.Tensor sub.Tensor sub_.Tensor rsub.Tensor mul.Tensor mul_.Tensor div.Tensor div_.Tensor remainder.Tensor
floor_divide atan2 maximum minimum eq.Tensor ne.Tensor lt.Tensor le.Tensor gt.Tensor ge.Tensor logical_and logical_or
bitwise_and.Tensor bitwise_or.Tensor __and__.Tensor __or__.Tensor
"""


def _is_real(value: Any) -> bool:
    return value.is_floating_point() if isinstance(value, Tensor) else isinstance(value, float)


@rule("where both are whole numbers and rounding_mode is 'trunc', other is a plain number, neither 0 nor -1")
def _truncated(self: Any, other: Any, rounding_mode: str | None) -> None:
    """The kernel divides the smallest number by -1, which ends the process (SIGFPE)."""
    if rounding_mode == "trunc" and not any(map(_is_real, (self, other))):
        safe = not isinstance(other, Tensor) and other not in (0, -1)
        require(safe, "it divides whole numbers by what may be 0 or -1")


@rule("rounding_mode is None, 'floor' or 'trunc'")
def _rounding(rounding_mode: str | None) -> None:
    require(rounding_mode in (None, "floor", "trunc"), f"'rounding_mode' is {rounding_mode!r}")


@rule("min or max is given")
def _bounds(min: Any, max: Any) -> None:
    require(min is not None or max is not None, "neither 'min' nor 'max' is given")


@rule("weight has one entry, or one for each channel (dimension 1 of self), and is contiguous")
def _slopes(self: Any, weight: Any) -> None:
    given, slopes = tensor("self", self), tensor("weight", weight, 0, 1)
    channels = given.shape[1] if given.dim() > 1 else 1
    require(slopes.numel() in (1, channels), f"'weight' has {slopes.numel()} entries for {channels} channels")
    require(slopes.is_contiguous(), "'weight' is not contiguous")


@rule("dim is a dimension of self, and of even size")
def _halves(self: Any, dim: int) -> None:
    given = tensor("self", self)
    require(given.dim() > 0, "'self' is a single number")
    size = given.shape[check_dim(dim, given.dim())]
    require(size % 2 == 0, f"the dimension {dim} has {size} entries")


@rule("condition is bool")
def _condition(condition: Any) -> None:
    require(tensor("condition", condition).dtype is torch.bool, f"'condition' is {condition.dtype}")


@rule("mask is bool; self and mask can be broadcast to one shape")
def _mask(self: Any, mask: Any) -> None:
    require(tensor("mask", mask).dtype is torch.bool, f"'mask' is {mask.dtype}")
    check_count(*broadcast_shape(shape_of(self), mask.shape))


@rule("value has no dimensions")
def _single(value: Any) -> None:
    require(shape_of(value) == (), f"'value' has the shape {list(shape_of(value))}")


CONTRACTS: dict[str, Contract] = {
    **each(_SINGLE),
    **each("gelu", word("approximate", "none", "tanh")),
    **each("clamp clamp_", _bounds),
    **each("clamp.Tensor", _bounds, broadcast("self", "min", "max")),
    **each("prelu", one_type("self", "weight"), _slopes),
    **each("glu", _halves),
    **each(_PAIRS, broadcast("self", "other")),
    **each("div.Tensor_mode", broadcast("self", "other"), _rounding, _truncated),
    **each("div.Scalar_mode", _rounding, _truncated),
    **each("pow.Tensor_Tensor", broadcast("self", "exponent")),
    **each("addcmul addcdiv", broadcast("self", "tensor1", "tensor2")),
    **each("lerp.Scalar", broadcast("self", "end")),
    **each("lerp.Tensor", broadcast("self", "end", "weight")),
    **each(_CHOICES, _condition, broadcast("condition", "self", "other")),
    **each("masked_fill.Scalar masked_fill_.Scalar", _mask),
    **each("masked_fill.Tensor masked_fill_.Tensor", _mask, _single),
    **each("copy_", broadcast("self", "src")),
}
