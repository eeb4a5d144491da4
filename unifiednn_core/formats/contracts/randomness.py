"""Operators that draw from the sub-model's own random numbers."""

from collections.abc import Sequence
from typing import Any

from unifiednn_core.formats.contracts.contract import Contract, each, note, require, rule
from unifiednn_core.formats.contracts.predicates import between, check_count, finite, one_type, tensor


@rule("no size is negative")
def _sizes(size: Sequence[int]) -> None:
    check_count(*size)


@rule("input is [batch, channels, ...]")
def _channels(input: Any) -> None:
    require(tensor("input", input).dim() >= 2, f"'input' has the shape {list(input.shape)}")


@rule("self is [batch, channels, ...]")
def _own_channels(self: Any) -> None:
    require(tensor("self", self).dim() >= 2, f"'self' has the shape {list(self.shape)}")


@rule("lower is not above upper")
def _slopes(lower: float, upper: float) -> None:
    require(lower <= upper, f"the slopes are from {lower} to {upper}")


_SHARES = note("the kernel checks at every call that the entries of self are from 0 to 1")
_P = between("p", 0, 1)
CONTRACTS: dict[str, Contract] = {
    **each("dropout alpha_dropout", _P),
    **each("dropout_ alpha_dropout_", _P),
    **each("feature_dropout feature_alpha_dropout", _P, _channels),
    **each("feature_dropout_", _P, _own_channels),
    **each(
        "bernoulli", one_type("self"), note("the kernel checks at every call that the entries of self are from 0 to 1")
    ),
    **each("bernoulli.p bernoulli_.float", _P),
    **each("rrelu rrelu_", finite("lower", "upper"), _slopes),
    **each("rand randn", _sizes),
    **each("rand_like randn_like"),
}
