"""Operators on one entry at a time, of one tensor or of several that are broadcast."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from unifiednn_core.formats.contracts.contract import Contract, each, require, rule
from unifiednn_core.formats.contracts.predicates import (
    broadcast,
    broadcast_shape,
    check_count,
    check_dim,
    check_same_type,
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
logical_not bitwise_not isnan isinf isfinite nan_to_num fill_.Scalar zero_ abs_ neg_ exp_ expm1_ log_ log1p_ sqrt_
rsqrt_ sin_ cos_ floor_ ceil_ round_ trunc_ sign_ reciprocal_ square_ erf_ clamp_min_ clamp_max_ pow_.Scalar acos acosh
asin asinh atanh log10 exp2 erfc erfinv lgamma digamma frac sgn sinc logit special_expit special_entr special_gammaln
special_i0 special_log1p special_expm1 special_erf special_exp2 special_logit special_erfinv special_digamma sub_.Scalar
div_.Scalar multiply.Scalar divide.Scalar subtract.Scalar float_power.Tensor_Scalar round.decimals isposinf isneginf
signbit positive nan_to_num_ fill.Scalar bitwise_and.Scalar bitwise_or.Scalar bitwise_xor.Scalar __and__.Scalar
__or__.Scalar __xor__.Scalar rad2deg deg2rad true_divide.Scalar arctan arcsin arccos negative absolute
"""
_CHOICES = "where.self where.ScalarOther where.ScalarSelf where.Scalar"
_PAIRS = """
add.Tensor add_.Tensor sub.Tensor sub_.Tensor rsub.Tensor mul.Tensor mul_.Tensor div.Tensor div_.Tensor remainder.Tensor
floor_divide atan2 maximum minimum eq.Tensor ne.Tensor lt.Tensor le.Tensor gt.Tensor ge.Tensor logical_and logical_or
bitwise_and.Tensor bitwise_or.Tensor __and__.Tensor __or__.Tensor max.other min.other multiply.Tensor multiply_.Tensor
divide.Tensor divide_.Tensor true_divide.Tensor true_divide_.Tensor subtract.Tensor subtract_.Tensor fmax fmin
copysign.Tensor hypot logaddexp logaddexp2 xlogy.Tensor special_xlogy special_xlog1py logical_xor bitwise_xor.Tensor
__xor__.Tensor __iand__.Tensor __ior__.Tensor bitwise_and_.Tensor bitwise_or_.Tensor logical_and_ logical_or_ isclose
arctan2 remainder_.Tensor
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


@rule("self and other are floating point")
def _reals(self: Any, other: Any) -> None:
    """The remainder of the smallest whole number by -1 ends the process (SIGFPE)."""
    require(all(map(_is_real, (self, other))) or isinstance(other, int), "it divides whole numbers")
    require(_is_real(self), "'self' is no floating point tensor")


@rule("self, other and out have one floating point type, and out the shape of the quotient, so that it is not resized")
def _fits_out(self: Any, other: Any, out: Any) -> None:
    for name, value in (("other", other), ("out", out)):
        check_same_type("self", self, name, tensor(name, value))
    require(broadcast_shape(self.shape, other.shape) == tuple(out.shape), f"'out' has the shape {list(out.shape)}")


@rule("the shifts are from 0 to 63")
def _shifts(other: int) -> None:
    require(0 <= other < 64, f"'other' is {other}")


@rule("there are tensors, at most 16, which can be broadcast to one shape")
def _together(tensors: Sequence[Any]) -> None:
    require(1 <= len(tensors) <= 16, f"there are {len(tensors)} tensors")
    check_count(*broadcast_shape(*(tensor("tensors", part).shape for part in tensors)))


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
    **each("clamp clamp_ clip clip_", _bounds),
    **each("clamp.Tensor clip.Tensor", _bounds, broadcast("self", "min", "max")),
    **each("clamp_min.Tensor", broadcast("self", "min")),
    **each("clamp_max.Tensor", broadcast("self", "max")),
    **each("prelu", one_type("self", "weight"), _slopes),
    **each("glu", _halves),
    **each(_PAIRS, broadcast("self", "other")),
    **each("div.Tensor_mode", broadcast("self", "other"), _rounding, _truncated),
    **each("div.Scalar_mode", _rounding, _truncated),
    **each("pow.Tensor_Tensor", broadcast("self", "exponent")),
    **each("addcmul addcdiv addcmul_ addcdiv_", broadcast("self", "tensor1", "tensor2")),
    **each("lerp.Scalar lerp_.Scalar", broadcast("self", "end")),
    **each("lerp.Tensor lerp_.Tensor", broadcast("self", "end", "weight")),
    **each(_CHOICES, _condition, broadcast("condition", "self", "other")),
    **each("masked_fill.Scalar masked_fill_.Scalar", _mask),
    **each("masked_fill.Tensor masked_fill_.Tensor", _mask, _single),
    **each("copy_", broadcast("self", "src")),
    **each("div.out", _fits_out),
    **each("fill.Tensor fill_.Tensor", _single),
    **each("fmod.Scalar", _reals),
    **each("fmod.Tensor", _reals, broadcast("self", "other")),
    **each("heaviside", broadcast("self", "values")),
    **each("__lshift__.Scalar __rshift__.Scalar", _shifts),
    **each("broadcast_tensors", _together),
}
