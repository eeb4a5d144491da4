"""Operators that draw from the sub-model's own random numbers."""

import math
from typing import Any

from unifiednn_core.formats.contracts.contract import Arguments, Contract, Rule, each, note, require, rule
from unifiednn_core.formats.contracts.factories import sizes_fit
from unifiednn_core.formats.contracts.predicates import (
    between,
    broadcast,
    check_count,
    finite,
    one_type,
    positive,
    tensor,
)


@rule("input is [batch, channels, ...]")
def _channels(input: Any) -> None:
    require(tensor("input", input).dim() >= 2, f"'input' has the shape {list(input.shape)}")


@rule("self is [batch, channels, ...]")
def _own_channels(self: Any) -> None:
    require(tensor("self", self).dim() >= 2, f"'self' has the shape {list(self.shape)}")


@rule("lower is not above upper")
def _slopes(lower: float, upper: float) -> None:
    require(lower <= upper, f"the slopes are from {lower} to {upper}")


def _check_range(arguments: Arguments) -> None:
    low, high = arguments["from"], arguments["to"]
    require(math.isfinite(low) and math.isfinite(high) and low <= high, f"from {low} to {high}")


@rule("there are whole numbers from low up to, without, high")
def _low_high(low: int, high: int) -> None:
    require(low < high, f"from {low} to {high}")


@rule("n is not negative")
def _order(n: int) -> None:
    check_count(n)


@rule(
    "self is [shares] or [rows, shares], floating point, with shares; num_samples is above 0, and without replacement "
    "at most their number; the kernel checks at every call that no share is negative or infinite"
)
def _choices(self: Any, num_samples: int, replacement: bool) -> None:
    given = tensor("self", self, 1, 2)
    require(given.is_floating_point() and given.numel() > 0, f"'self' is {given.dtype} {list(given.shape)}")
    require(num_samples > 0 and (replacement or num_samples <= given.shape[-1]), f"'num_samples' is {num_samples}")
    check_count(given.numel(), num_samples)


_SHARES = note("the kernel checks at every call that the entries of self are from 0 to 1")
_FROM_TO = Rule("from and to are finite, in this order", _check_range)
_STD = between("std", 0, 1e30)
_SPREAD = note("the kernel checks at every call that no entry of std is negative")
_REAL = one_type("self")
_P = between("p", 0, 1)
CONTRACTS: dict[str, Contract] = {
    **each("dropout alpha_dropout", _P),
    **each("dropout_ alpha_dropout_", _P),
    **each("feature_dropout feature_alpha_dropout", _P, _channels),
    **each("feature_dropout_", _P, _own_channels),
    **each("bernoulli", _REAL, _SHARES),
    **each("bernoulli.p bernoulli_.float", _P),
    **each("rrelu rrelu_", finite("lower", "upper"), _slopes),
    **each("rand randn", sizes_fit),
    **each("rand_like randn_like"),
    **each("uniform_", _REAL, _FROM_TO),
    **each("normal_", _REAL, finite("mean"), _STD),
    **each("exponential_", _REAL, positive("lambd")),
    **each("normal.Tensor_float", one_type("mean"), _STD),
    **each("normal.float_Tensor", one_type("std"), finite("mean"), _SPREAD),
    **each("normal.Tensor_Tensor", one_type("mean", "std"), broadcast("mean", "std"), _SPREAD),
    **each("randint", sizes_fit, between("high", 1, 2**31)),
    **each("randint.low", sizes_fit, _low_high),
    **each("randint_like", between("high", 1, 2**31)),
    **each("randint_like.low_dtype", _low_high),
    **each("randperm", _order),
    **each("multinomial", _choices),
}
