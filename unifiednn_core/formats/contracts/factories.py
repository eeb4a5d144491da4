"""Tensors made from numbers, and copies in another type or place."""

import math
from collections.abc import Sequence

from unifiednn_core.formats.contracts.contract import Contract, each, note, require, rule
from unifiednn_core.formats.contracts.predicates import check_count, positive

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
}
