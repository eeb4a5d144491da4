"""A tree of plain values and tensors, taken apart into a JSON value and named tensors, and put together again.

JSON has no tuples, no keys but strings and no NaN, so that what it lacks is an object of one entry that names the kind:
`{"tuple": [...]}`, `{"dict": [[key, value], ...]}`, `{"tensor": "optimizer.state.0.exp_avg"}`. Nothing else comes back,
whatever a hostile file says.
"""

import math
import struct
from collections import Counter, OrderedDict
from collections.abc import Mapping
from typing import Any

from torch import Tensor

MAX_DEPTH = 64
MAX_INT_BITS = 4096
_MAPPINGS: dict[str, type[dict[Any, Any]]] = {"dict": dict, "OrderedDict": OrderedDict, "Counter": Counter}
_RESERVED = "__metadata__"  # not a name for a tensor in safetensors


def take_apart(tree: object) -> tuple[object, dict[str, Tensor]]:
    """JSON value and tensors by name; raises `TypeError` that names the place of whatever is neither."""
    tensors: dict[str, Tensor] = {}
    return _node(tree, (), tensors), tensors


def put_together(node: Any, tensors: Mapping[str, Tensor], depth: int = 0) -> Any:
    """Tree that `take_apart` was given; raises `ValueError`, `TypeError` or `KeyError` for anything it never makes."""
    if depth > MAX_DEPTH:
        raise ValueError("the tree is too deep")
    if node is None or isinstance(node, bool | int | float | str):
        return node
    if isinstance(node, list):
        return [put_together(item, tensors, depth + 1) for item in node]
    if len(node) != 1:
        raise ValueError("an object of the tree names no kind")
    ((kind, content),) = node.items()
    if kind == "float":
        return _float_of(content)
    if kind == "tensor":
        return tensors[content]
    if kind == "tuple":
        return tuple(put_together(item, tensors, depth + 1) for item in content)
    pairs = ((put_together(key, {}, depth + 1), put_together(item, tensors, depth + 1)) for key, item in content)
    return _MAPPINGS[kind](dict(pairs))


def _node(value: Any, path: tuple[str, ...], tensors: dict[str, Tensor]) -> object:
    kind = type(value)
    if len(path) > MAX_DEPTH:
        raise TypeError(f"{_place(path[:4])}... goes deeper than {MAX_DEPTH} levels; does the tree contain itself?")
    if value is None or kind is bool:
        return value
    if isinstance(value, str):  # torch's version is a subclass; plain text of equal value comes back
        return str.__str__(value)
    if kind is int and value.bit_length() <= MAX_INT_BITS:
        return value
    if kind is float:
        return value if math.isfinite(value) else {"float": struct.pack(">d", value).hex()}
    if isinstance(value, Tensor):
        name = _free_name(path, tensors)
        tensors[name] = value
        return {"tensor": name}
    if kind in (list, tuple):
        items = [_node(item, (*path, str(place)), tensors) for place, item in enumerate(value)]
        return items if kind is list else {"tuple": items}
    if kind in _MAPPINGS.values():
        pairs = [[_key(key, path), _node(item, (*path, str(key)), tensors)] for key, item in value.items()]
        return {kind.__name__: pairs}
    raise TypeError(
        f"{_place(path)} is a {kind.__name__}; a checkpoint holds tensors, dict, OrderedDict, Counter, list, tuple, "
        "str, bool, float, None, and int of ordinary size."
    )


def _key(key: object, path: tuple[str, ...]) -> object:
    node, tensors = take_apart(key)
    if tensors:
        raise TypeError(f"{_place(path)} has a tensor for a key; a checkpoint cannot hold that.")
    return node


def _free_name(path: tuple[str, ...], tensors: Mapping[str, Tensor]) -> str:
    """Name by the path; a number is added where two paths would read the same."""
    name = _place(path).encode("utf-8", "backslashreplace").decode()
    number, free = 1, name
    while free in tensors or free == _RESERVED:
        number += 1
        free = f"{name}~{number}"
    return free


def _place(path: tuple[str, ...]) -> str:
    return ".".join(path) or "~"


def _float_of(bits: str) -> float:
    packed = bytes.fromhex(bits)
    if len(packed) != 8:
        raise ValueError("a float has eight bytes")
    value: float = struct.unpack(">d", packed)[0]
    return value
