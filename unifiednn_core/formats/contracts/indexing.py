"""Look-ups and writes by position. The kernels check the range at every call; on CUDA that ends the process."""

import math
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
    finite,
    one_type,
    shape_of,
    tensor,
    word,
)

BY_KERNEL = "the kernel checks the range of the {} at every call"
MOST_BINS = 2**20


def check_index(name: str, value: Any, *ranks: int, types: frozenset[torch.dtype] = INDEX_TYPES) -> Tensor:
    """Return an index; raises `Broken` for another type or rank."""
    given = tensor(name, value, *ranks)
    require(given.dtype in types, f"'{name}' is {given.dtype}")
    return given


@rule(f"weight is [rows, width]; indices are int32 or int64; padding_idx is a row; {BY_KERNEL.format('indices')}")
def _rows(weight: Any, indices: Any, padding_idx: int) -> None:
    table, given = tensor("weight", weight, 2), check_index("indices", indices)
    rows, width = table.shape
    require(rows > 0 and -rows <= padding_idx < rows, f"'padding_idx' is {padding_idx} of {rows} rows")
    check_count(*given.shape, width)


@rule(f"self is int64, num_classes above 0 or -1 (the largest of self, and one more); {BY_KERNEL.format('classes')}")
def _classes(self: Any, num_classes: int) -> None:
    given = check_index("self", self, types=frozenset({torch.int64}))
    require(num_classes > 0 or (num_classes == -1 and given.numel() > 0), f"'num_classes' is {num_classes}")
    check_count(*given.shape, max(num_classes, 0))


@rule(
    "the indices are int32 or int64 and can be broadcast to one shape, or bool with the sizes of the dimensions that "
    f"they stand for; they are for no more dimensions than self has; {BY_KERNEL.format('indices')}"
)
def _places(self: Any, indices: Sequence[Any]) -> None:
    indexed_shape(self, indices)


def indexed_shape(value: Any, indices: Sequence[Any]) -> tuple[int, ...] | None:
    """Sizes of what the indices name, None where a mask decides; raises `Broken` for indices that do not fit."""
    shape, place = tensor("self", value).shape, 0
    kept: list[int] = []
    shapes: list[Sequence[int]] = []
    named: list[int] = []  # the dimensions that positions stand for
    masked = False
    for given in indices:
        require(place < len(shape) or given is None, f"there are indices for more than {len(shape)} dimensions")
        if given is None:
            kept += shape[place : place + 1]
            place += 1
            continue
        index = check_index("indices", given, types=INDEX_TYPES | {torch.bool})
        if index.dtype is torch.bool:
            covered = tuple(shape[place : place + index.dim()])
            fits = index.dim() > 0 and covered == tuple(index.shape)
            require(fits, f"a mask {list(index.shape)} for {list(covered)}")
            place += index.dim()
            masked = True
        else:
            shapes.append(index.shape)
            named.append(place)
            place += 1
    require(place <= len(shape) and any(given is not None for given in indices), f"there are {len(indices)} indices")
    front, rest = broadcast_shape(*shapes), [*kept, *shape[place:]]
    check_count(*front, *rest)
    if masked:
        return None
    # Positions side by side: the result has their sizes in their place, else in front.
    before = named[0] if named[-1] - named[0] == len(named) - 1 else 0
    return (*rest[:before], *front, *rest[before:])


def has_mask(arguments: Arguments) -> bool:
    """Whether one of the indices is a mask, so that values decide the shape."""
    return any(isinstance(value, Tensor) and value.dtype is torch.bool for value in arguments["indices"])


@rule(f"index is int32 or int64 with at most one dimension; {BY_KERNEL.format('index')}")
def _picked(self: Any, dim: int, index: Any) -> None:
    given, places = tensor("self", self), check_index("index", index, 0, 1)
    if given.dim():
        place = check_dim(dim, given.dim())
        check_count(*given.shape[:place], places.numel(), *given.shape[place + 1 :])
    else:
        require(places.numel() == 1, "'self' is a single number")


@rule(
    "index is int64, has the dimensions of self, and is not larger than self in those beside dim; "
    + BY_KERNEL.format("index")
)
def _gathered(self: Any, dim: int, index: Any) -> None:
    given, places = tensor("self", self), check_index("index", index, types=frozenset({torch.int64}))
    shapes, place = f"{list(given.shape)} and {list(places.shape)}", check_dim(dim, given.dim())
    require(max(given.dim(), 1) == max(places.dim(), 1), f"the shapes are {shapes}")
    for at, (size, most) in enumerate(zip(places.shape, given.shape, strict=False)):
        require(at == place or size <= most, f"the shapes are {shapes}")


@rule(
    "indices is int64; without dim both are read as one row, else they have as many dimensions and can be broadcast in "
    f"those beside dim; {BY_KERNEL.format('indices')}"
)
def _along(self: Any, indices: Any, dim: int | None) -> None:
    given, places = tensor("self", self), check_index("indices", indices, types=frozenset({torch.int64}))
    if dim is not None:
        require(given.dim() == places.dim() > 0, f"the shapes are {list(given.shape)} and {list(places.shape)}")
        place = check_dim(dim, given.dim())
        rest = [(*part.shape[:place], *part.shape[place + 1 :]) for part in (given, places)]
        check_count(*broadcast_shape(*rest), places.shape[place])
        check_count(*broadcast_shape(*rest), given.shape[place])


@rule(
    "weight is [rows, width], contiguous; indices and offsets are int32 or int64, of one type, with one dimension, "
    "contiguous; offsets begin at 0, do not fall, and end within indices, with include_last_offset at their end (their "
    "values are looked at in every call); "
    "mode is 0 (sum), 1 (mean) or 2 (max); per_sample_weights, only in a sum, have the shape of indices and the type "
    "of weight; padding_idx is a row; " + BY_KERNEL.format("indices")
)
def _bags(
    weight: Any,
    indices: Any,
    offsets: Any,
    mode: int,
    per_sample_weights: Any,
    padding_idx: int | None,
    include_last_offset: bool,
) -> None:
    table, given = tensor("weight", weight, 2), check_index("indices", indices, 1)
    begins = check_index("offsets", offsets, 1, types=frozenset({given.dtype}))
    rows, width = table.shape
    require(rows > 0 and width > 0 and table.is_contiguous(), f"'weight' has the shape {list(table.shape)}")
    require(given.is_contiguous() and begins.is_contiguous(), "'indices' or 'offsets' are not contiguous")
    require(padding_idx is None or -rows <= padding_idx < rows, f"'padding_idx' is {padding_idx} of {rows} rows")
    require(mode in (0, 1, 2) and (per_sample_weights is None or mode == 0), f"'mode' is {mode}")
    if per_sample_weights is not None:
        shares = tensor("per_sample_weights", per_sample_weights, 1)
        fits = shares.shape == given.shape and shares.dtype == table.dtype and shares.is_contiguous()
        require(fits, f"'per_sample_weights' is {shares.dtype} {list(shares.shape)}")
    check_count(begins.numel(), width)
    require(begins.numel() > bool(include_last_offset), f"there are {begins.numel()} offsets")
    if begins.device.type != "meta":
        places = [0, *begins.tolist(), given.numel()]
        fits = places[1] == 0 and all(map(int.__le__, places, places[1:]))
        require(fits, f"'offsets' do not rise from 0 to at most {given.numel()}")
        require(not include_last_offset or places[-2] == given.numel(), f"the last of 'offsets' is {places[-2]}")


@rule("self is [rows, width]; indices are int32 or int64 and contiguous; " + BY_KERNEL.format("indices"))
def _shortened(self: Any, indices: Any) -> None:
    tensor("self", self, 2)
    require(check_index("indices", indices).is_contiguous(), "'indices' is not contiguous")


@rule("index is int64; " + BY_KERNEL.format("index"))
def _taken(self: Any, index: Any) -> None:
    tensor("self", self)
    check_index("index", index, types=frozenset({torch.int64}))


@rule("boundaries have one dimension")
def _boundaries(boundaries: Any) -> None:
    tensor("boundaries", boundaries, 1)


@rule("sorted_sequence has one dimension, or those of self with the same sizes but the last; no sorter is given")
def _sorted(sorted_sequence: Any, self: Any, side: str | None, sorter: Any) -> None:
    line, given = tensor("sorted_sequence", sorted_sequence), tensor("self", self)
    fits = line.dim() == 1 or (line.dim() == given.dim() > 0 and line.shape[:-1] == given.shape[:-1])
    require(fits, f"the shapes are {list(line.shape)} and {list(given.shape)}")
    require(sorter is None and side in (None, "left", "right"), f"'side' is {side!r}, or a sorter is given")


@rule(f"self is floating point; bins is from 1 to {MOST_BINS:,}; min and max are finite, in this order")
def _histogram(self: Any, bins: int, min: float, max: float) -> None:
    require(tensor("self", self).is_floating_point(), f"'self' is {self.dtype}")
    require(1 <= bins <= MOST_BINS, f"'bins' is {bins}")
    require(math.isfinite(min) and math.isfinite(max) and min <= max, f"from {min} to {max}")


@rule("mask is bool; self and mask can be broadcast to one shape")
def _chosen(self: Any, mask: Any) -> None:
    require(tensor("mask", mask).dtype is torch.bool, f"'mask' is {mask.dtype}")
    check_count(*broadcast_shape(tensor("self", self).shape, mask.shape))


def _always(arguments: Arguments) -> bool:
    return True


def _contract(name: str, depends: Any, *rules: Rule) -> dict[str, Contract]:
    return {full_name(name): Contract(rules, depends)}


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
def _placed_rows(self: Any, dim: int, index: Any, source: Any) -> None:
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
    **each("embedding", one_type("weight"), _rows),
    **_contract("one_hot", lambda arguments: arguments["num_classes"] == -1, _classes),
    **_contract("index.Tensor", has_mask, _places),
    **each("index_select", dims("self", "dim"), _picked),
    **each("gather", dims("self", "dim"), _gathered),
    **each("take_along_dim", dims("self", "dim"), _along),
    **_contract("embedding_bag.padding_idx", _always, one_type("weight"), _bags),
    **each("embedding_renorm_", one_type("self"), _shortened, finite("max_norm", "norm_type")),
    **each("take", _taken),
    **each("bucketize.Tensor", _boundaries),
    **each("searchsorted.Tensor", _sorted),
    **each("isin.Tensor_Tensor"),
    **each("histc", _histogram),
    **_contract("masked_select", _always, _chosen),
    **_contract("nonzero", _always),
    **_contract("nonzero_numpy", _always),
    **each("scatter.value scatter_.value", _DIM, _scattered),
    **each("scatter.src scatter_.src scatter_add scatter_add_", _DIM, _scattered, _source),
    **each("scatter_reduce.two scatter_reduce_.two", _DIM, _scattered, _source, _REDUCED),
    **each("index_add index_add_ index_copy index_copy_", _DIM, _placed_rows),
    **each("index_fill.int_Scalar index_fill_.int_Scalar", _DIM, _filled),
    **each("index_fill.int_Tensor index_fill_.int_Tensor", _DIM, _filled, _value),
    **{full_name(name): _PUT for name in ("index_put", "index_put_")},
    **each("masked_scatter masked_scatter_", _masked),
    **each("select_scatter", _DIM, _one_row),
    **each("slice_scatter", _DIM, _slice),
}
