"""The same entries in another shape or order: views, joins and parts."""

import math
from collections.abc import Sequence
from typing import Any

from unifiednn_core.formats.contracts.contract import Contract, Rule, each, note, require, rule
from unifiednn_core.formats.contracts.predicates import (
    broadcast_shape,
    check_count,
    check_dim,
    dims,
    shape_of,
    tensor,
    word,
)

MOST_PARTS = 2**16
MOST_PIECES = 16


def _check_sizes(count: int, sizes: Sequence[int]) -> None:
    """The sizes hold as many entries; one of them may be -1."""
    known = math.prod(size for size in sizes if size != -1)
    require(min(sizes, default=0) >= -1 and sizes.count(-1) <= 1, f"the new shape is {list(sizes)}")
    fits = known == count if -1 not in sizes else known > 0 and count % known == 0
    require(fits, f"the new shape {list(sizes)} does not hold {count} entries")


@rule("size holds as many entries as self; one of its entries may be -1")
def _viewed(self: Any, size: Sequence[int]) -> None:
    _check_sizes(tensor("self", self).numel(), list(size))


@rule("shape holds as many entries as self; one of its entries may be -1")
def _reshaped(self: Any, shape: Sequence[int]) -> None:
    _check_sizes(tensor("self", self).numel(), list(shape))


@rule("other has as many entries as self")
def _like(self: Any, other: Any) -> None:
    counts = tensor("self", self).numel(), tensor("other", other).numel()
    require(counts[0] == counts[1], f"the shapes are {list(self.shape)} and {list(other.shape)}")


@rule("start_dim and end_dim are dimensions of self, in this order")
def _range(self: Any, start_dim: int, end_dim: int) -> None:
    rank = len(shape_of(self))
    require(check_dim(start_dim, rank) <= check_dim(end_dim, rank), f"it flattens {start_dim} to {end_dim} of {rank}")


@rule("dim is a dimension of self, and sizes hold as many entries as it; one of them may be -1")
def _parted(self: Any, dim: int, sizes: Sequence[int]) -> None:
    shape = tensor("self", self).shape
    require(len(shape) > 0 and len(sizes) > 0, "'self' is a single number, or there are no sizes")
    _check_sizes(shape[check_dim(dim, len(shape))], list(sizes))


@rule("dim is a place between the dimensions of self")
def _place(self: Any, dim: int) -> None:
    check_dim(dim, len(shape_of(self)) + 1)


@rule("dims names each dimension of self once")
def _permuted(self: Any, dims: Sequence[int]) -> None:
    rank = len(shape_of(self))
    require(sorted(check_dim(dim, rank) for dim in dims) == list(range(rank)), f"'dims' is {list(dims)} of {rank}")


@rule("self has at most 2 dimensions")
def _matrix(self: Any) -> None:
    tensor("self", self, 0, 1, 2)


@rule("source and destination are as many dimensions of self")
def _moved(self: Any, source: Any, destination: Any) -> None:
    many = isinstance(source, list | tuple)
    require(not many or len(source) == len(destination), f"it moves {source} to {destination}")


@rule("self can be broadcast to size; -1 keeps a size")
def _expanded(self: Any, size: Sequence[int]) -> None:
    shape = shape_of(self)
    added = len(size) - len(shape)
    require(added >= 0 and -1 not in size[:added] and min(size, default=0) >= -1, f"{list(shape)} to {list(size)}")
    wanted = [old if new == -1 else new for old, new in zip((0,) * added + shape, size, strict=True)]
    _check_expanded(shape, wanted)


@rule("self can be broadcast to the shape of other")
def _expanded_as(self: Any, other: Any) -> None:
    _check_expanded(shape_of(self), shape_of(other))


def _check_expanded(shape: Sequence[int], wanted: Sequence[int]) -> None:
    check_count(*wanted)
    require(broadcast_shape(shape, wanted) == tuple(wanted), f"{list(shape)} does not expand to {list(wanted)}")


@rule("repeats has an entry, not negative, for at least each dimension of self")
def _repeated(self: Any, repeats: Sequence[int]) -> None:
    shape = shape_of(self)
    require(len(repeats) >= len(shape), f"'repeats' is {list(repeats)} for {list(shape)}")
    check_count(*repeats, *shape)


@rule("dims is not negative")
def _tiled(self: Any, dims: Sequence[int]) -> None:
    check_count(*dims, *shape_of(self))


@rule("repeats is not negative, and output_size, if given, what it makes of dim")
def _interleaved(self: Any, repeats: int, dim: int | None, output_size: int | None) -> None:
    shape = shape_of(self)
    size = math.prod(shape) if dim is None else shape[check_dim(dim, len(shape))] if shape else 1
    check_count(repeats, *shape)
    require(output_size in (None, size * repeats), f"'output_size' is {output_size} instead of {size * repeats}")


@rule("there are tensors, of one shape but for dim; one that is empty with a single dimension is left out")
def _joined(tensors: Sequence[Any], dim: int) -> None:
    shapes = [tuple(tensor("tensors", part).shape) for part in tensors]
    shapes = [shape for shape in shapes if shape != (0,)] or shapes[:1]
    require(len(shapes) > 0 and len(shapes[0]) > 0, "there are no tensors, or single numbers")
    place = check_dim(dim, len(shapes[0]))
    for shape in shapes:
        rest = (*shape[:place], *shape[place + 1 :])
        same = len(shape) == len(shapes[0]) and rest == (*shapes[0][:place], *shapes[0][place + 1 :])
        require(same, f"the shapes {list(shapes[0])} and {list(shape)} differ beside dimension {dim}")
    check_count(sum(shape[place] for shape in shapes), *shapes[0][:place], *shapes[0][place + 1 :])


@rule("there are tensors, of one shape; dim is a place between its dimensions")
def _stacked(tensors: Sequence[Any], dim: int) -> None:
    shapes = [tuple(tensor("tensors", part).shape) for part in tensors]
    require(len(set(shapes)) == 1, f"the shapes are {' and '.join(sorted({str(list(shape)) for shape in shapes}))}")
    check_dim(dim, len(shapes[0]) + 1)
    check_count(len(shapes), *shapes[0])


def _check_parts(count: int) -> None:
    require(count <= MOST_PARTS, f"it would give {count} parts")


def _size(value: Any, dim: int) -> int:
    shape = tensor("self", value).shape
    require(len(shape) > 0, "'self' is a single number")
    return int(shape[check_dim(dim, len(shape))])


_PARTS = f"self has the dimension dim; there are at most {MOST_PARTS:,} parts"


@rule(f"{_PARTS}, at least one")
def _chunks(self: Any, chunks: int, dim: int) -> None:
    require(chunks >= 1, f"'chunks' is {chunks}")
    _check_parts(min(chunks, _size(self, dim)))


@rule(f"{_PARTS}; split_size is above 0, or 0 where dim is empty")
def _split(self: Any, split_size: int, dim: int) -> None:
    size = _size(self, dim)
    require(split_size > 0 or split_size == size == 0, f"'split_size' is {split_size} of {size}")
    _check_parts(size // max(split_size, 1))


@rule(f"{_PARTS}; their sizes add up to that of dim")
def _split_sizes(self: Any, split_size: Sequence[int], dim: int) -> None:
    _check_split(self, split_size, dim)


@rule(f"{_PARTS}; their sizes add up to that of dim")
def _split_with_sizes(self: Any, split_sizes: Sequence[int], dim: int) -> None:
    _check_split(self, split_sizes, dim)


def _check_split(value: Any, sizes: Sequence[int], dim: int) -> None:
    size = _size(value, dim)
    require(min(sizes, default=0) >= 0 and sum(sizes) == size, f"the parts {list(sizes)} do not add up to {size}")
    _check_parts(len(sizes))


@rule(_PARTS)
def _unbound(self: Any, dim: int) -> None:
    _check_parts(_size(self, dim))


@rule(f"{_PARTS}, at least one")
def _sections(self: Any, sections: int, dim: int) -> None:
    _size(self, dim)
    require(1 <= sections <= MOST_PARTS, f"'sections' is {sections}")


@rule("index is a place in dim of self, from its start or its end")
def _selected(self: Any, dim: int, index: int) -> None:
    size = _size(self, dim)
    require(-size <= index < size, f"there is no place {index} of {size}")


@rule("dim is a dimension of self and step above 0")
def _sliced(self: Any, dim: int, step: int) -> None:
    _size(self, dim)
    require(step > 0, f"'step' is {step}")


@rule("start and length lie within dim of self")
def _narrowed(self: Any, dim: int, start: int, length: int) -> None:
    size = _size(self, dim)
    begin = start + size if start < 0 else start
    require(begin >= 0 and length >= 0 and begin + length <= size, f"it takes {length} from {start} of {size}")


@rule("dim1 and dim2 are two dimensions of self")
def _diagonal(self: Any, dim1: int, dim2: int) -> None:
    rank = len(shape_of(self))
    require(rank >= 2 and check_dim(dim1, rank) != check_dim(dim2, rank), f"{dim1} and {dim2} of {rank} dimensions")


@rule("there is one shift for each of dims, or one alone")
def _rolled(shifts: Sequence[int], dims: Sequence[int]) -> None:
    fits = len(shifts) == len(dims) or (not dims and len(shifts) == 1)
    require(fits, f"there are {len(shifts)} shifts for {len(dims)} dimensions")


@rule("self is a matrix, or several")
def _triangle(self: Any) -> None:
    require(len(shape_of(self)) >= 2, f"'self' has the shape {list(shape_of(self))}")


@rule("the tensors are vectors or numbers, of one type, at most 16")
def _grid(tensors: Sequence[Any]) -> None:
    require(1 <= len(tensors) <= 16, f"there are {len(tensors)} tensors")
    check_count(*(tensor("tensors", part, 0, 1).numel() for part in tensors))
    require(len({part.dtype for part in tensors}) == 1, "the tensors have different types")


@rule("windows of size, not negative, lie within dimension of self, and step is above 0")
def _windows(self: Any, dimension: int, size: int, step: int) -> None:
    shape = shape_of(self)
    most = shape[check_dim(dimension, len(shape))] if shape else 1
    require(0 <= size <= most and step > 0, f"windows of {size} in {most}, step {step}")


@rule("there are tensors, at most 16; their sizes fit as those of cat")
def _pieces(tensors: Sequence[Any]) -> None:
    require(1 <= len(tensors) <= MOST_PIECES, f"there are {len(tensors)} tensors")
    check_count(sum(tensor("tensors", part).numel() for part in tensors))


@rule("there are matrices, vectors or numbers, at most 16")
def _blocks(tensors: Sequence[Any]) -> None:
    require(1 <= len(tensors) <= MOST_PIECES, f"there are {len(tensors)} tensors")
    shapes = [tensor("tensors", part, 0, 1, 2).shape for part in tensors]
    rows, columns = ([1, *shape[:-1]][-1] for shape in shapes), ([1, *shape][-1] for shape in shapes)
    check_count(sum(rows), sum(columns))


@rule("self is a vector (then the result is square) or a matrix")
def _diag(self: Any, diagonal: int) -> None:
    given = tensor("self", self, 1, 2)
    if given.dim() == 1:
        check_count(*[given.numel() + abs(diagonal)] * 2)


@rule("self has dimensions; dim1 and dim2 are two of those of the result")
def _embedded(self: Any, offset: int, dim1: int, dim2: int) -> None:
    given = tensor("self", self)
    require(given.dim() > 0, "'self' is a single number")
    rank = given.dim() + 1
    require(check_dim(dim1, rank) != check_dim(dim2, rank), f"{dim1} and {dim2} of {rank} dimensions")
    check_count(*given.shape[:-1], *[given.shape[-1] + abs(offset)] * 2)


@rule("row and col are not negative")
def _corner(row: int, col: int) -> None:
    check_count(row, col)


@rule("indices do not fall, and lie within dim of self")
def _cuts(self: Any, indices: Sequence[int], dim: int) -> None:
    size, cuts = _size(self, dim), [0, *indices]
    _check_parts(len(indices))
    require(all(map(int.__le__, cuts, [*indices, size])), f"'indices' is {list(indices)} of {size}")


def _divided(name: str, rank: int, place: int) -> Rule:
    @rule(f"sections divides the {name} of self")
    def check(self: Any, sections: int) -> None:
        given = tensor("self", self)
        require(given.dim() >= rank, f"'self' has the shape {list(given.shape)}")
        size = given.shape[place if given.dim() > 1 else 0]
        require(sections > 0 and size % sections == 0, f"'sections' is {sections} of {size}")
        _check_parts(sections)

    return check


@rule("dims are two dimensions of self")
def _turned(self: Any, dims: Sequence[int]) -> None:
    rank = len(shape_of(self))
    require(len(dims) == 2 and check_dim(dims[0], rank) != check_dim(dims[1], rank), f"'dims' is {list(dims)}")


@rule("self is [batch, channels, ...]; groups divides the channels")
def _grouped(self: Any, groups: int) -> None:
    given = tensor("self", self)
    require(given.dim() >= 3 and groups > 0, f"'self' has the shape {list(given.shape)}, 'groups' is {groups}")
    require(given.shape[1] % groups == 0, f"{groups} groups of {given.shape[1]} channels")


@rule("self has as many dimensions as are turned")
def _flat(self: Any) -> None:
    require(len(shape_of(self)) >= 2, f"'self' has the shape {list(shape_of(self))}")


@rule("the tensors are vectors, of one type, at most 6")
def _vectors(tensors: Sequence[Any]) -> None:
    require(1 <= len(tensors) <= 6, f"there are {len(tensors)} tensors")
    check_count(len(tensors), *(tensor("tensors", part, 1).numel() for part in tensors))
    require(len({part.dtype for part in tensors}) == 1, "the tensors have different types")


_UNSAFE = "so that gradients notice a change of its memory"
_DIM = dims("self", "dim")
CONTRACTS: dict[str, Contract] = {
    **each("view", _viewed),
    **each("_unsafe_view", _viewed, note("it runs as view, so that gradients notice a change of its memory")),
    **each("reshape", _reshaped),
    **each("view_as reshape_as", _like),
    **each("flatten.using_ints", _range),
    **each("unflatten.int", _parted),
    **each("squeeze sym_numel"),
    **each("squeeze.dim squeeze.dims sym_size.int", _DIM),
    **each("unsqueeze", _place),
    **each("transpose.int", dims("self", "dim0"), dims("self", "dim1")),
    **each("swapaxes", dims("self", "axis0"), dims("self", "axis1")),
    **each("permute", _permuted),
    **each("t numpy_T matrix_H", _matrix),
    **each("movedim.int movedim.intlist", dims("self", "source"), dims("self", "destination"), _moved),
    **each("expand broadcast_to", _expanded),
    **each("expand_as", _expanded_as),
    **each("repeat", _repeated),
    **each("tile", _tiled),
    **each("repeat_interleave.self_int", _interleaved),
    **each("cat concat", _joined),
    **each("stack", _stacked),
    **each("chunk", _chunks),
    **each("split.Tensor", _split),
    **each("split.sizes", _split_sizes),
    **each("split_with_sizes", _split_with_sizes),
    **each("unbind.int", _unbound),
    **each("tensor_split.sections", _sections),
    **each("select.int", _selected),
    **each("slice.Tensor", _sliced),
    **each("narrow", _narrowed),
    **each("diagonal", _diagonal),
    **each("flip", dims("self", "dims")),
    **each("roll", dims("self", "dims"), _rolled),
    **each("tril triu", _triangle),
    **each("meshgrid.indexing", _grid, word("indexing", "ij", "xy")),
    **each("unfold", _windows),
    **each("ravel atleast_1d atleast_2d atleast_3d"),
    **each("mT mH adjoint", _flat),
    **each("swapdims", dims("self", "dim0"), dims("self", "dim1")),
    **each("moveaxis.int moveaxis.intlist", dims("self", "source"), dims("self", "destination"), _moved),
    **each("hstack vstack dstack column_stack", _pieces),
    **each("block_diag", _blocks),
    **each("diag", _diag),
    **each("diag_embed", _embedded),
    **each("tril_indices triu_indices", _corner),
    **each("tensor_split.indices", _cuts),
    **each("hsplit.int", _divided("columns", 1, 1)),
    **each("vsplit.int", _divided("rows", 2, 0)),
    **each("unsafe_chunk", _chunks, note(f"it runs as chunk, {_UNSAFE}")),
    **each("unsafe_split.Tensor", _split, note(f"it runs as split, {_UNSAFE}")),
    **each("fliplr flipud", _flat),
    **each("rot90", _turned),
    **each("channel_shuffle", _grouped),
    **each("cartesian_prod", _vectors),
    **each("meshgrid", _grid),
}
