"""Every change of one place of a checkpoint, written with right hashes."""

import copy
import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from unifiednn_core.engine.checkpoint import Checkpoint

Path = tuple[Any, ...]
"""Keys and places from the root to a value; the root holds the fields of a checkpoint."""


class Forgery(NamedTuple):
    """One change."""

    path: Path
    name: str
    change: Callable[[Any], Any]
    """Makes the new value at the path."""
    gone: tuple[Any, ...] = ()
    """Key of the value at the path that is no longer there."""

    def __repr__(self) -> str:
        return f"{'.'.join(map(str, (*self.path, *self.gone)))} {self.name}"


def forged(checkpoint: Checkpoint, forgery: Forgery) -> Checkpoint:
    """The checkpoint with the change, and the rest shared."""
    return Checkpoint(**_changed(_tree_of(checkpoint), forgery.path, forgery.change))


def forgeries(checkpoint: Checkpoint) -> list[Forgery]:
    return [each for path, value in nodes(_tree_of(checkpoint)) if path for each in _at(path, value)]


def _tree_of(checkpoint: Checkpoint) -> dict[str, Any]:
    return {field.name: getattr(checkpoint, field.name) for field in fields(Checkpoint)}


def _changed(tree: Any, path: Path, change: Callable[[Any], Any]) -> Any:
    if not path:
        return change(tree)
    made = list(tree) if isinstance(tree, tuple) else copy.copy(tree)
    made[path[0]] = _changed(tree[path[0]], path[1:], change)
    return tuple(made) if isinstance(tree, tuple) else made


def nodes(tree: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    yield path, tree
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list | tuple) else ()
    for key, value in items:
        yield from nodes(value, (*path, key))


OTHERS: dict[str, Any] = {
    "none": None,
    "true": True,
    "zero": 0,
    "one": 1,
    "minus one": -1,
    "many": 10**6,
    "2^62": 2**62,
    "2^63": 2**63,
    "endless int": 2**4000,
    "half": 0.5,
    "below zero": -1e-30,
    "1e308": 1e308,
    "nan": math.nan,
    "inf": math.inf,
    "-inf": -math.inf,
    "text": "fused",
    "long text": "x" * 10_000,
    "code": "<b>\u202e\x1b[2J",
    "list": [],
    "dict": {},
    "list of lists": [[[]]],
    "Counter": Counter({"a": 1}),
    "OrderedDict": OrderedDict(step=1),
    "scalar": torch.tensor(3.0),
    "short": torch.zeros(1),
    "empty": torch.zeros(0),
    "bytes": torch.zeros(9, dtype=torch.uint8),
}
OF_NUMBERS: dict[str, Callable[[Any], Any]] = {
    "more": lambda n: n + 1,
    "less": lambda n: n - 1,
    "double": lambda n: n * 2,
    "negative": lambda n: -n,
    "as float": float,
    "next float": lambda n: math.nextafter(n, math.inf),
}
OF_TENSORS: dict[str, Callable[[Tensor], Tensor]] = {
    **{
        str(dtype): partial(torch.Tensor.to, dtype=dtype)
        for dtype in (torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8, torch.bool)
    },
    **{
        f"filled with {value}": partial(torch.full_like, fill_value=value)
        for value in (0, 1, 255, -1, math.nan, math.inf, -math.inf, 1e38)
    },
    "first": lambda t: t.reshape(-1)[:1],
    "flat": lambda t: t.reshape(-1),
    "one more dimension": lambda t: t[None],
    "longer": lambda t: torch.cat([t.reshape(-1)] * 2),
    "shorter": lambda t: t.reshape(-1)[:-1],
    "turned": lambda t: t.transpose(0, -1).contiguous() if t.dim() else t,
    "inverted": lambda t: -t if t.is_floating_point() else ~t,
    "double": lambda t: t * 2,
    "one bit": lambda t: _flipped(t, 8),
    "one bit of the last": lambda t: _flipped(t, -1),
    "reversed": lambda t: t.flip(0) if t.dim() else t + 1,
}


def _flipped(tensor: Tensor, place: int) -> Tensor:
    raw = tensor.detach().contiguous().reshape(-1).view(torch.uint8).clone()
    raw[place % len(raw)] ^= 1
    return raw.view(tensor.dtype).reshape(tensor.shape)


def _at(path: Path, value: Any) -> Iterator[Forgery]:
    for name, other in OTHERS.items():
        yield Forgery(path, name, lambda _, other=other: other)
    if isinstance(value, int | float) and not isinstance(value, bool):
        for name, change in OF_NUMBERS.items():
            yield Forgery(path, name, change)
    if isinstance(value, Tensor):
        for name, change in OF_TENSORS.items():
            yield Forgery(path, name, change)
    if isinstance(value, dict):
        for name, key in {"more": "optimizer", "odd": "__class__", "number": 99, "none": None, "1.0": 1.0}.items():
            yield Forgery(path, f"with {name}", lambda had, key=key: {**had, key: had.get(key, 0)})
        for gone in value:
            yield Forgery(path, "gone", lambda had, gone=gone: {k: v for k, v in had.items() if k != gone}, (gone,))
    if isinstance(value, list | tuple):
        yield Forgery(path, "longer", lambda had: [*had, *had[-1:]] or [0])
        yield Forgery(path, "shorter", lambda had: had[:-1])
        yield Forgery(path, "turned", lambda had: had[::-1])
