"""Operators along dimensions: sums, extremes, norms, sorting, softmax."""

from typing import Any

from unifiednn_core.formats.contracts.contract import Contract, each, require, rule
from unifiednn_core.formats.contracts.predicates import check_dim, dims, shape_of, tensor

_WHOLE = "sum mean prod any all var std norm.Scalar"
_ALONG = """
sum.dim_IntList mean.dim prod.dim_int any.dim all.dim var.dim var.correction std.dim std.correction var_mean.correction
norm.ScalarOpt_dim linalg_vector_norm logsumexp cumsum cumprod sort softmax.int log_softmax.int
"""


@rule("self has entries")
def _some(self: Any) -> None:
    require(tensor("self", self).numel() > 0, f"'self' has the shape {list(self.shape)}")


@rule("self has entries along dim, or at all where dim is not given")
def _some_along(self: Any, dim: Any) -> None:
    shape, dims = shape_of(self), dim if isinstance(dim, list | tuple) else [] if dim is None else [dim]
    sizes = [shape[check_dim(one, len(shape))] for one in dims] if shape else []
    require(0 not in (sizes or shape), f"'self' has the shape {list(shape)}")


@rule("k is from 0 to the size of dim")
def _largest(self: Any, k: int, dim: int) -> None:
    shape = shape_of(self)
    size = shape[check_dim(dim, len(shape))] if shape else 1
    require(0 <= k <= size, f"'k' is {k} of {size}")


@rule("half_to_float is off")
def _same_type(half_to_float: bool) -> None:
    require(not half_to_float, "'half_to_float' is on")


_DIM = dims("self", "dim")
CONTRACTS: dict[str, Contract] = {
    **each(_WHOLE),
    **each(_ALONG, _DIM),
    **each("max min", _some),
    **each("amax amin max.dim min.dim argmax argmin", _DIM, _some_along),
    **each("topk", _DIM, _largest),
    **each("_softmax _log_softmax", _DIM, _same_type),
}
