"""Rules that many operators share, as functions that make them for the arguments of one."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from unifiednn_core.formats.contracts.contract import Arguments, Broken, Rule, require
from unifiednn_core.formats.contracts.general import MOST_ENTRIES

PLACES = {1: "length", 2: "height, width", 3: "depth, height, width"}
"""How the last dimensions of images are called."""
INDEX_TYPES = frozenset({torch.int32, torch.int64})


def shape_of(value: Any) -> tuple[int, ...]:
    """Sizes of a tensor; a plain number has none."""
    return tuple(value.shape) if isinstance(value, Tensor) else ()


def check_dim(dim: int, rank: int) -> int:
    """Return a dimension counted from the front; raises `Broken` if there is none such."""
    most = max(rank, 1)
    require(-most <= dim < most, f"there is no dimension {dim} of {rank}")
    return dim % most


def broadcast_shape(*shapes: Sequence[int]) -> tuple[int, ...]:
    """Sizes of a result that several arguments are stretched to; raises `Broken` if they do not fit."""
    rank = max(map(len, shapes), default=0)
    full = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    result = []
    for sizes in zip(*full, strict=True):
        kinds = {size for size in sizes if size != 1}
        require(len(kinds) <= 1, f"the shapes {' and '.join(str(list(shape)) for shape in shapes)} do not fit")
        result.append(kinds.pop() if kinds else 1)
    return tuple(result)


def check_count(*sizes: int) -> None:
    """Raise `Broken` if a tensor of these sizes would have too many entries, or a negative size."""
    require(min(sizes, default=0) >= 0 and math.prod(sizes) < MOST_ENTRIES, f"the result would be {list(sizes)}")


def broadcast(*names: str) -> Rule:
    """The shapes of these arguments are equal, or 1, in each dimension."""

    def check(arguments: Arguments) -> None:
        given = [arguments[name] for name in names if arguments[name] is not None]
        check_count(*broadcast_shape(*map(shape_of, given)))

    return Rule(f"{listed(names)} can be broadcast to one shape", check)


def one_type(*names: str) -> Rule:
    """These tensors are floating point, of one type."""

    def check(arguments: Arguments) -> None:
        for name in names:
            check_same_type(names[0], arguments[names[0]], name, arguments[name])

    return Rule(f"{listed(names)} {'have one' if names[1:] else 'has a'} floating point type", check)


def check_same_type(first: str, one: Any, name: str, value: Any) -> None:
    """Raise `Broken` unless both are tensors of one floating point type; `value` may be missing."""
    require(isinstance(one, Tensor) and one.is_floating_point(), f"'{first}' is not floating point")
    if value is not None:
        found = value.dtype if isinstance(value, Tensor) else "a number"
        require(found == one.dtype, f"'{name}' is {found}, '{first}' is {one.dtype}")


def dims(tensor: str = "self", *names: str) -> Rule:
    """Each dimension that is named exists, and no list names one twice."""

    def check(arguments: Arguments) -> None:
        rank = len(shape_of(arguments[tensor]))
        for name in names:
            value = arguments[name]
            entries = value if isinstance(value, list | tuple) else [value]
            found = [check_dim(dim, rank) for dim in entries if dim is not None]
            require(len(set(found)) == len(found), f"'{name}' names a dimension twice: {value}")

    return Rule(f"{listed(names)} {'name' if names[1:] else 'names'} dimensions of {tensor}, none twice", check)


def between(name: str, least: float, most: float, *, optional: bool = False) -> Rule:
    """A number is in a range; not NaN."""

    def check(arguments: Arguments) -> None:
        value = arguments[name]
        if value is None and optional:
            return
        require(least <= value <= most, f"'{name}' is {value}")

    if most == math.inf:
        return Rule(f"{name} is at least {least:g}", check)
    return Rule(f"{name} is from {least:g} to {most:g}", check)


def positive(name: str) -> Rule:
    """A number is finite and above 0; it may be missing."""

    def check(arguments: Arguments) -> None:
        value = arguments[name]
        require(value is None or (math.isfinite(value) and value > 0), f"'{name}' is {value}")

    return Rule(f"{name} is above 0", check)


def finite(*names: str) -> Rule:
    """These numbers are neither infinite nor NaN."""

    def check(arguments: Arguments) -> None:
        for name in names:
            require(arguments[name] is None or math.isfinite(arguments[name]), f"'{name}' is {arguments[name]}")

    return Rule(f"{listed(names)} {'are' if names[1:] else 'is'} finite", check)


def word(name: str, *allowed: str | None) -> Rule:
    """A text is one of a few."""
    text = f"{name} is {' or '.join(map(repr, allowed))}"
    return Rule(text, lambda arguments: require(arguments[name] in allowed, f"'{name}' is {arguments[name]!r}"))


def check_vector(name: str, value: Any, count: int) -> None:
    """Raise `Broken` unless a tensor is contiguous with `count` entries; it may be missing."""
    if value is None:
        return
    if not isinstance(value, Tensor):
        raise Broken(f"'{name}' is a number")
    require(tuple(value.shape) == (count,), f"'{name}' has the shape {list(value.shape)} instead of [{count}]")
    require(value.is_contiguous(), f"'{name}' is not contiguous")


def tensor(name: str, value: Any, *ranks: int) -> Tensor:
    """Return a tensor; raises `Broken` for a number, or another number of dimensions."""
    if not isinstance(value, Tensor):
        raise Broken(f"'{name}' is a number")
    require(not ranks or value.dim() in ranks, f"'{name}' has the shape {list(value.shape)}")
    return value


def listed(names: Sequence[str]) -> str:
    """Join names as in a sentence."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
