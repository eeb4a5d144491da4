"""Operators along dimensions: sums, extremes, norms, sorting, softmax."""

from typing import Any

from unifiednn_core.formats.contracts.contract import Contract, each, require, rule
from unifiednn_core.formats.contracts.general import overlaps_itself
from unifiednn_core.formats.contracts.predicates import (
    between,
    check_dim,
    dims,
    finite,
    positive,
    shape_of,
    tensor,
    word,
)

_WHOLE = "sum mean prod any all var std norm.Scalar std_mean var_mean median nanmedian"
_ALONG = """
sum.dim_IntList mean.dim prod.dim_int any.dim all.dim var.dim var.correction std.dim std.correction var_mean.correction
norm.ScalarOpt_dim linalg_vector_norm logsumexp cumsum cumprod sort softmax.int log_softmax.int std_mean.dim
std_mean.correction var_mean.dim cummax cummin logcumsumexp nansum nanmean count_nonzero count_nonzero.dim_IntList
argsort argsort.stable sort.stable cumsum_ cumprod_ special_softmax special_logsumexp special_log_softmax
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


@rule("the entries of self do not overlap, as those of an expanded tensor do")
def _apart(self: Any) -> None:
    """The kernel sorts a copy that it makes in the layout of self."""
    require(not overlaps_itself(tensor("self", self)), "several of its entries are the same memory")


@rule("k is from 1 to the size of dim")
def _kth(self: Any, k: int, dim: int) -> None:
    shape = shape_of(self)
    size = shape[check_dim(dim, len(shape))] if shape else 1
    require(1 <= k <= size, f"'k' is {k} of {size}")


@rule("ord is not given, or a number with one dimension in dim")
def _order(ord: float | None, dim: Any) -> None:
    require(ord is None or (dim is not None and len(dim) == 1), f"'ord' is {ord} for 'dim' {dim}")


@rule("n is from 0 to 16; prepend and append, if given, have the dimensions of self and its sizes but in dim")
def _differences(self: Any, n: int, dim: int, prepend: Any, append: Any) -> None:
    given = tensor("self", self)
    require(given.dim() > 0 and 0 <= n <= 16, f"'n' is {n}, 'self' has the shape {list(given.shape)}")
    place = check_dim(dim, given.dim())
    for part in (prepend, append):
        if part is not None:
            more = tensor("prepend", part, given.dim())
            require(more.dtype == given.dtype, f"the types are {given.dtype} and {more.dtype}")
            rest = [(*one.shape[:place], *one.shape[place + 1 :]) for one in (given, more)]
            require(rest[0] == rest[1], f"the shapes are {list(given.shape)} and {list(more.shape)}")


@rule("self is a matrix")
def _matrix(self: Any) -> None:
    tensor("self", self, 2)


@rule("self has dimensions")
def _dimensions(self: Any) -> None:
    require(len(shape_of(self)) > 0, "'self' is a single number")


@rule("half_to_float is off")
def _same_type(half_to_float: bool) -> None:
    require(not half_to_float, "'half_to_float' is on")


_DIM = dims("self", "dim")
CONTRACTS: dict[str, Contract] = {
    **each(_WHOLE),
    **each(_ALONG, _DIM),
    **each("max min", _some),
    **each("amax amin max.dim min.dim argmax argmin aminmax", _DIM, _some_along),
    **each("median.dim nanmedian.dim mode", _DIM, _some_along, _apart),
    **each("kthvalue", _DIM, _kth, _apart),
    **each("linalg_norm", _DIM, _order),
    **each("linalg_matrix_norm.str_ord", _DIM, word("ord", "fro")),
    **each("renorm", _DIM, positive("p"), between("maxnorm", 0, 1e30)),
    **each("diff", _differences),
    **each("trace", _matrix),
    **each(
        "quantile.scalar nanquantile.scalar",
        _DIM,
        _some,
        between("q", 0, 1),
        word("interpolation", "linear", "lower", "higher", "midpoint", "nearest"),
    ),
    **each("trapezoid.dx cumulative_trapezoid.dx", dims("y", "dim"), finite("dx")),
    **each("msort", _dimensions),
    **each("topk", _DIM, _largest),
    **each("_softmax _log_softmax", _DIM, _same_type),
}
