"""What one entry of a checkpoint may be. Each function raises `BadCheckpoint` that names the entry and its place."""

import math
from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor

from unifiednn_core.base.errors import BadCheckpoint
from unifiednn_core.base.units import abbreviated

LARGEST = torch.finfo(torch.float32).max
NAMED = 3
SHOWN_CHARACTERS = 60


def misfits(given: object, expected: Mapping[str, Tensor]) -> list[str]:
    """Reasons why tensors by name do not fill `expected`, one phrase each."""
    if not isinstance(given, Mapping):
        return ["it holds no state dict"]
    groups = {
        "missing": [f"'{name}'" for name in expected if name not in given],
        "unexpected": [shown(str(name)) for name in given if name not in expected],
        "of another shape or type": [
            f"'{name}' is {shown(given[name])}, not {shown(tensor)}"
            for name, tensor in expected.items()
            if name in given and not _alike(given[name], tensor.dtype, tensor.shape)
        ],
    }
    return [f"{what} {abbreviated(names, NAMED)}" for what, names in groups.items() if names]


def entries(value: object, place: str, needed: Collection[str], optional: Collection[str] = ()) -> Mapping[str, Any]:
    """A dict with all `needed` keys, some `optional` ones, and no other."""
    if not isinstance(value, dict):
        raise refusal(value, place, "a dict")
    for key in needed:
        if key not in value:
            raise BadCheckpoint(f"The checkpoint lacks {place}.{key}.")
    for key in value:
        if key not in needed and key not in optional:
            raise BadCheckpoint(f"The checkpoint has {shown(str(key))} in {place}, where no such entry belongs.")
    return value


def tensor(value: object, place: str, dtype: torch.dtype, shape: Collection[int]) -> Tensor:
    """A tensor of exactly this type and shape."""
    if not isinstance(value, Tensor) or not _alike(value, dtype, shape):
        raise refusal(value, place, _kind(dtype, shape))
    return value


def whole(value: object, place: str, least: int, most: int) -> int:
    """An int of these bounds, both included."""
    if type(value) is not int or not least <= value <= most:
        raise refusal(value, place, f"a whole number from {least} to {most}")
    return value


def number(value: object, place: str, least: float = 0.0, most: float = LARGEST) -> None:
    """A finite int or float of these bounds, both included."""
    if type(value) not in (int, float) or not least <= value <= most:  # type: ignore[operator]
        raise refusal(value, place, f"a number from {least:g} to {most:g}")


def real(value: object, place: str, least: float = -math.inf, most: float = math.inf, *, or_nan: bool = False) -> None:
    """A float of these bounds, both included."""
    if type(value) is not float or not (least <= value <= most or (or_nan and math.isnan(value))):
        raise refusal(value, place, f"a float from {least:g} to {most:g}")


def equal(value: object, expected: object, place: str) -> None:
    """The same as what the spec gives."""
    if not same(value, expected):
        raise refusal(value, place, shown(expected))


def same(value: object, expected: object) -> bool:
    """Whether a value is another, a list or tuple alike, and 1 is 1.0, but not true."""
    match expected:
        case list() | tuple():
            if not isinstance(value, list | tuple) or len(value) != len(expected):
                return False
            return all(map(same, value, expected))
        case dict():
            if not isinstance(value, dict) or value.keys() != expected.keys():
                return False
            return all(same(value[key], expected[key]) for key in expected)
        case int() | float() if not isinstance(expected, bool):
            return type(value) in (int, float) and value == expected
    return type(value) is type(expected) and value == expected


def refusal(value: object, place: str, expected: str) -> BadCheckpoint:
    """Make the exception for a value that does not belong there."""
    return BadCheckpoint(f"The checkpoint has {shown(value)} as {place}; {expected} belongs there.")


def shown(value: object) -> str:
    """Describe a value of a file in a few words, without characters that a terminal obeys."""
    if isinstance(value, Tensor):
        return _kind(value.dtype, value.shape)
    if value is None or isinstance(value, bool | int | float | str):
        said = repr(value[:SHOWN_CHARACTERS] if isinstance(value, str) else value)
        return said if len(said) <= 2 * SHOWN_CHARACTERS else f"{said[:SHOWN_CHARACTERS]}..."
    return f"a {type(value).__name__}"


def _alike(value: object, dtype: torch.dtype, shape: Collection[int]) -> bool:
    return isinstance(value, Tensor) and value.dtype is dtype and tuple(value.shape) == tuple(shape)


def _kind(dtype: torch.dtype, shape: Collection[int]) -> str:
    return f"{str(dtype).removeprefix('torch.')} {list(shape)}"
