"""Writes to places that an index or a mask names. The kernels check the range of the positions at every call."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from unifiednn_core.formats.contracts.contract import Contract, each, full_name, require, rule
from unifiednn_core.formats.contracts.indexing import BY_KERNEL, check_index, has_mask, indexed_shape
from unifiednn_core.formats.contracts.predicates import (
    broadcast_shape,
    check_count,
    check_dim,
    dims,
    shape_of,
    tensor,
    word,
)

_INDEX = BY_KERNEL.format("index")
_LONG = frozenset({torch.int64})


def _check_alike(name: str, value: Any, target: Tensor) -> None:
    require(tensor(name, value).dtype == target.dtype, f"'{name}' is {value.dtype}, 'self' is {target.dtype}")


def _check_placed(target: Any, dim: int, index: Any) -> tuple[Tensor, Tensor]:
    mine, places = tensor("self", target), check_index("index", index, types=_LONG)
    require(mine.dim() == places.dim(), f"the shapes are {list(mine.shape)} and {list(places.shape)}")
    along = check_dim(dim, mine.dim())
    for at, (size, most) in enumerate(zip(places.shape, mine.shape, strict=True)):
        require(at == along or size <= most, f"the shapes are {list(mine.shape)} and {list(places.shape)}")
    return mine, places


@rule(f"index is int64, has the dimensions of self, and is not larger than self in those beside dim; {_INDEX}")
def _scattered(self: Any, dim: int, index: Any) -> None:
    _check_placed(self, dim, index)


@rule("src has the type and the dimensions of self, and is at least as large as index")
def _source(self: Any, index: Any, src: Any) -> None:
    _check_alike("src", src, self)
    fits = src.dim() == index.dim() and all(map(int.__ge__, src.shape, index.shape))
    require(fits, f"'src' has the shape {list(src.shape)}, 'index' {list(index.shape)}")


def _check_row(target: Any, dim: int, index: Any) -> tuple[Tensor, Tensor, int]:
    mine, places = tensor("self", target), check_index("index", index, 0, 1)
    require(mine.dim() > 0, "'self' is a single number")
    return mine, places, check_dim(dim, mine.dim())


@rule(f"index is int32 or int64 with at most one dimension; {_INDEX}")
def _filled(self: Any, dim: int, index: Any) -> None:
    _check_row(self, dim, index)


@rule("value is a single number of the type of self")
def _value(self: Any, value: Any) -> None:
    require(shape_of(value) == (), f"'value' has the shape {list(shape_of(value))}")
    _check_alike("value", value, self)


@rule(
    f"index is int64 with one dimension; source has the type and shape of self, but in dim as many places as index; "
    f"{_INDEX}"
)
def _rows(self: Any, dim: int, index: Any, source: Any) -> None:
    mine, places, along = _check_row(self, dim, index)
    require(places.dim() == 1 and places.dtype is torch.int64, f"'index' is {places.dtype} {list(places.shape)}")
    _check_alike("source", source, mine)
    wanted = (*mine.shape[:along], places.numel(), *mine.shape[along + 1 :])
    require(tuple(source.shape) == wanted, f"'source' has the shape {list(source.shape)} instead of {list(wanted)}")


@rule(
    "the indices are those of index.Tensor; values have the type of self and can be broadcast to what they name "
    "(where a mask decides how much that is, the kernel checks it)"
)
def _put(self: Any, indices: Sequence[Any], values: Any) -> None:
    named = indexed_shape(self, indices)
    _check_alike("values", values, self)
    if named is not None:
        fits = broadcast_shape(named, shape_of(values)) == named
        require(fits, f"'values' has the shape {list(shape_of(values))} for {list(named)}")


@rule(
    "mask is bool and can be broadcast to self; source has the type of self; the kernel checks that it has as many "
    "entries as there are true ones"
)
def _masked(self: Any, mask: Any, source: Any) -> None:
    require(tensor("mask", mask).dtype is torch.bool, f"'mask' is {mask.dtype}")
    check_count(*broadcast_shape(tensor("self", self).shape, mask.shape))
    _check_alike("source", source, self)


@rule("src has the type of self, and its shape without dim; index is a place in dim")
def _one_row(self: Any, src: Any, dim: int, index: int) -> None:
    mine = tensor("self", self)
    along = check_dim(dim, mine.dim())
    require(mine.dim() > 0 and -mine.shape[along] <= index < mine.shape[along], f"there is no place {index}")
    _check_alike("src", src, mine)
    wanted = (*mine.shape[:along], *mine.shape[along + 1 :])
    require(tuple(src.shape) == wanted, f"'src' has the shape {list(src.shape)} instead of {list(wanted)}")


@rule("src has the type of self, and the shape of that slice of it; step is above 0")
def _slice(self: Any, src: Any, dim: int, start: int | None, end: int | None, step: int) -> None:
    mine = tensor("self", self)
    along = check_dim(dim, mine.dim())
    require(mine.dim() > 0 and step > 0, f"'step' is {step}")
    _check_alike("src", src, mine)
    count = len(range(mine.shape[along])[start:end:step])
    wanted = (*mine.shape[:along], count, *mine.shape[along + 1 :])
    require(tuple(src.shape) == wanted, f"'src' has the shape {list(src.shape)} instead of {list(wanted)}")


_DIM = dims("self", "dim")
_REDUCED = word("reduce", "sum", "prod", "mean", "amax", "amin")
_PUT = Contract((_put,), has_mask)
CONTRACTS: dict[str, Contract] = {
    **each("scatter.value scatter_.value", _DIM, _scattered),
    **each("scatter.src scatter_.src scatter_add scatter_add_", _DIM, _scattered, _source),
    **each("scatter_reduce.two scatter_reduce_.two", _DIM, _scattered, _source, _REDUCED),
    **each("index_add index_add_ index_copy index_copy_", _DIM, _rows),
    **each("index_fill.int_Scalar index_fill_.int_Scalar", _DIM, _filled),
    **each("index_fill.int_Tensor index_fill_.int_Tensor", _DIM, _filled, _value),
    **{full_name(name): _PUT for name in ("index_put", "index_put_")},
    **each("masked_scatter masked_scatter_", _masked),
    **each("select_scatter", _DIM, _one_row),
    **each("slice_scatter", _DIM, _slice),
}
