"""Tensors made from numbers or drawn, and copies in another type or place."""

import math
from collections.abc import Sequence
from typing import Any

from unifiednn_core.formats.contracts.contract import Arguments, Contract, Rule, each, note, require, rule
from unifiednn_core.formats.contracts.predicates import (
    between,
    broadcast,
    check_count,
    finite,
    one_type,
    positive,
    tensor,
)

_COPIES = """
zeros_like ones_like full_like to.dtype to.dtype_layout to.device to.other _to_copy type_as contiguous clone detach
detach_ lift_fresh_copy alias
"""


@rule("no size is negative")
def sizes_fit(size: Sequence[int]) -> None:
    """Check the sizes of a tensor that is made."""
    check_count(*size)


def _check_range(start: float, end: float, step: float) -> None:
    require(all(map(math.isfinite, (start, end, step))), f"from {start} to {end} by {step}")
    require(step != 0 and (end - start) * step >= 0, f"from {start} to {end} by {step}")
    check_count(math.ceil((end - start) / step))


@rule("end is finite and not negative")
def _end(end: float) -> None:
    _check_range(0, end, 1)


@rule("start and end are finite, in this order")
def _from_to(start: float, end: float) -> None:
    _check_range(start, end, 1)


@rule("start, end and step are finite; step is not 0 and leads from start to end")
def _stepped(start: float, end: float, step: float) -> None:
    _check_range(start, end, step)


@rule("start and end are finite, steps is not negative")
def _steps(start: float, end: float, steps: int) -> None:
    require(math.isfinite(start) and math.isfinite(end), f"from {start} to {end}")
    check_count(steps)


@rule("n is not negative")
def _square(n: int) -> None:
    check_count(n, n)


@rule("n and m are not negative")
def _rectangle(n: int, m: int) -> None:
    check_count(n, m)


@rule("window_length is not negative")
def _window(window_length: int) -> None:
    check_count(window_length)


@rule("input is [batch, channels, ...]")
def _channels(input: Any) -> None:
    require(tensor("input", input).dim() >= 2, f"'input' has the shape {list(input.shape)}")


@rule("self is [batch, channels, ...]")
def _own_channels(self: Any) -> None:
    require(tensor("self", self).dim() >= 2, f"'self' has the shape {list(self.shape)}")


@rule("lower is not above upper")
def _slopes(lower: float, upper: float) -> None:
    require(lower <= upper, f"the slopes are from {lower} to {upper}")


def _check_bounds(arguments: Arguments) -> None:
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
_FROM_TO = Rule("from and to are finite, in this order", _check_bounds)
_STD = between("std", 0, 1e30)
_SPREAD = note("the kernel checks at every call that no entry of std is negative")
_REAL = one_type("self")
_P = between("p", 0, 1)
CONTRACTS: dict[str, Contract] = {
    **each(_COPIES),
    **each("scalar_tensor"),
    **each("zeros ones full new_zeros new_ones new_full", sizes_fit),
    **each("new_empty", sizes_fit, note("it runs as new_zeros: unwritten memory is never read")),
    **each("empty.memory_format", sizes_fit, note("it runs as zeros: unwritten memory is never read")),
    **each("empty_like", note("it runs as zeros_like: unwritten memory is never read")),
    **each("arange", _end),
    **each("arange.start", _from_to),
    **each("arange.start_step", _stepped),
    **each("linspace", _steps),
    **each("logspace", _steps, positive("base")),
    **each("eye", _square),
    **each("eye.m", _rectangle),
    **each("hann_window hann_window.periodic hamming_window hamming_window.periodic", _window),
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
