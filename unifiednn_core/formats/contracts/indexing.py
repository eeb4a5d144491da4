"""Look-ups by position. The kernels check the range of the positions at every call; on CUDA that ends the process."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from unifiednn_core.formats.contracts.contract import Arguments, Contract, Rule, each, full_name, require, rule
from unifiednn_core.formats.contracts.predicates import (
    INDEX_TYPES,
    broadcast_shape,
    check_count,
    check_dim,
    dims,
    one_type,
    tensor,
)

_BY_KERNEL = "the kernel checks the range of the {} at every call"


def _check_index(name: str, value: Any, *ranks: int, types: frozenset[torch.dtype] = INDEX_TYPES) -> Tensor:
    given = tensor(name, value, *ranks)
    require(given.dtype in types, f"'{name}' is {given.dtype}")
    return given


@rule(f"weight is [rows, width]; indices are int32 or int64; padding_idx is a row; {_BY_KERNEL.format('indices')}")
def _rows(weight: Any, indices: Any, padding_idx: int) -> None:
    table, given = tensor("weight", weight, 2), _check_index("indices", indices)
    rows, width = table.shape
    require(rows > 0 and -rows <= padding_idx < rows, f"'padding_idx' is {padding_idx} of {rows} rows")
    check_count(*given.shape, width)


@rule(f"self is int64, num_classes above 0 or -1 (the largest of self, and one more); {_BY_KERNEL.format('classes')}")
def _classes(self: Any, num_classes: int) -> None:
    given = _check_index("self", self, types=frozenset({torch.int64}))
    require(num_classes > 0 or (num_classes == -1 and given.numel() > 0), f"'num_classes' is {num_classes}")
    check_count(*given.shape, max(num_classes, 0))


@rule(
    "the indices are int32 or int64 and can be broadcast to one shape, or bool with the sizes of the dimensions that "
    f"they stand for; they are for no more dimensions than self has; {_BY_KERNEL.format('indices')}"
)
def _places(self: Any, indices: Sequence[Any]) -> None:
    shape, place = tensor("self", self).shape, 0
    kept: list[int] = []
    shapes: list[Sequence[int]] = []
    for value in indices:
        require(place < len(shape) or value is None, f"there are indices for more than {len(shape)} dimensions")
        if value is None:
            kept += shape[place : place + 1]
            place += 1
            continue
        index = _check_index("indices", value, types=INDEX_TYPES | {torch.bool})
        if index.dtype is torch.bool:
            covered = tuple(shape[place : place + index.dim()])
            fits = index.dim() > 0 and covered == tuple(index.shape)
            require(fits, f"a mask {list(index.shape)} for {list(covered)}")
            place += index.dim()
        else:
            shapes.append(index.shape)
            place += 1
    require(place <= len(shape) and any(value is not None for value in indices), f"there are {len(indices)} indices")
    check_count(*broadcast_shape(*shapes), *kept, *shape[place:])


def _has_mask(arguments: Arguments) -> bool:
    return any(isinstance(value, Tensor) and value.dtype is torch.bool for value in arguments["indices"])


@rule(f"index is int32 or int64 with at most one dimension; {_BY_KERNEL.format('index')}")
def _picked(self: Any, dim: int, index: Any) -> None:
    given, places = tensor("self", self), _check_index("index", index, 0, 1)
    if given.dim():
        place = check_dim(dim, given.dim())
        check_count(*given.shape[:place], places.numel(), *given.shape[place + 1 :])
    else:
        require(places.numel() == 1, "'self' is a single number")


@rule(
    "index is int64, has the dimensions of self, and is not larger than self in those beside dim; "
    + _BY_KERNEL.format("index")
)
def _gathered(self: Any, dim: int, index: Any) -> None:
    given, places = tensor("self", self), _check_index("index", index, types=frozenset({torch.int64}))
    shapes, place = f"{list(given.shape)} and {list(places.shape)}", check_dim(dim, given.dim())
    require(max(given.dim(), 1) == max(places.dim(), 1), f"the shapes are {shapes}")
    for at, (size, most) in enumerate(zip(places.shape, given.shape, strict=False)):
        require(at == place or size <= most, f"the shapes are {shapes}")


@rule(
    "indices is int64; without dim both are read as one row, else they have as many dimensions and can be broadcast in "
    f"those beside dim; {_BY_KERNEL.format('indices')}"
)
def _along(self: Any, indices: Any, dim: int | None) -> None:
    given, places = tensor("self", self), _check_index("indices", indices, types=frozenset({torch.int64}))
    if dim is not None:
        require(given.dim() == places.dim() > 0, f"the shapes are {list(given.shape)} and {list(places.shape)}")
        place = check_dim(dim, given.dim())
        rest = [(*part.shape[:place], *part.shape[place + 1 :]) for part in (given, places)]
        check_count(*broadcast_shape(*rest), places.shape[place])
        check_count(*broadcast_shape(*rest), given.shape[place])


def _contract(name: str, depends: Any, *rules: Rule) -> dict[str, Contract]:
    return {full_name(name): Contract(rules, depends)}


CONTRACTS: dict[str, Contract] = {
    **each("embedding", one_type("weight"), _rows),
    **_contract("one_hot", lambda arguments: arguments["num_classes"] == -1, _classes),
    **_contract("index.Tensor", _has_mask, _places),
    **each("index_select", dims("self", "dim"), _picked),
    **each("gather", dims("self", "dim"), _gathered),
    **each("take_along_dim", dims("self", "dim"), _along),
}
