"""A checkpoint as a value, and its state flattened into one JSON value and named tensors.

JSON has no tuples, no NaN and only string keys. What it lacks becomes an object with one entry that names the kind:
`{"tuple": [...]}`, `{"dict": [[key, value], ...]}`, `{"tensor": "optimizer.state.0.exp_avg"}`. Reading creates nothing
else, whatever a hostile file says.
"""

import math
import struct
from collections import Counter, OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

FORMAT_VERSION = 2
MAX_DEPTH = 64
MAX_INT_BITS = 4096
MAX_STEPS = 2**40
_MAPPINGS: dict[str, type[dict[Any, Any]]] = {"dict": dict, "OrderedDict": OrderedDict, "Counter": Counter}
_RESERVED = "__metadata__"  # safetensors does not allow a tensor of this name


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """State of one sub-model between two steps, in host copies that never change.

    `state` is a tree of dicts, lists, tuples, tensors and plain values:

    - `model`: the submitted network's own `state_dict()`
    - `ema`: the `state_dict()` with averaged weights; only where the spec asks for an average
    - `scaler`: `state_dict()` of the scaler of its loss; only with precision float16
    - `buffers`: those of its buffers that its `state_dict()` leaves out
    - `optimizer`: `state_dict()` of the optimizer
    - `lr_scheduler`: `state_dict()` of the LR scheduler, or None
    - `rng`: `cpu` (uint8 [5056]) and `cuda` (uint8 [16], or None), the states of the default generators in a plain
      loop, whichever generator its steps draw from
    - `data`: `generator` (uint8, state of the data generator after the current order was drawn), `order` (int64
      [samples], samples of the current epoch, or None between epochs) and `cursor` (samples of it already used)
    - `metrics`: `last` (figures of the last finished epoch), `improvement` (what early stopping has seen) and `tally`
      (sums over the steps of the current epoch); their size does not depend on the epochs done
    """

    submodel: str
    """Key in the hybrid; in a file and from a file the plain name, so that no file tells where it trained."""
    step: int
    """Steps done since the start of the training."""
    epoch: int
    """Whole epochs done."""
    state: Mapping[str, Any]
    score: float | None = None
    """Rank for "best": test accuracy, else minus the loss, of the last finished epoch; None before the first."""
    recipe: Mapping[str, Any]
    """What the state belongs to, as plain values: names and arguments of optimizer, criterion and LR scheduler, batch
    size, seed, samples of the training set, device type, torch version, and the kinds of device (`engine.kinds`)."""


def name_of_key(key: str) -> str:
    """Name of a sub-model in its spec, by its key in a hybrid: `RUN_ID/NAME` or just that name."""
    return key.rpartition("/")[2]


def transient_buffers(module: nn.Module) -> dict[str, Tensor]:
    """Buffers that `state_dict` leaves out; a network may still change them from step to step."""
    kept = module.state_dict().keys()
    return {name: buffer for name, buffer in module.named_buffers() if name not in kept}


def fill(module: nn.Module, weights: Mapping[str, Any], buffers: Mapping[str, Tensor]) -> None:
    """Copy a state dict and transient buffers that fit into a network."""
    module.load_state_dict(weights)
    for name, buffer in transient_buffers(module).items():
        buffer.copy_(buffers.get(name, buffer))


def flatten(tree: object) -> tuple[object, dict[str, Tensor]]:
    """Return a JSON value and the tensors by name; raises `TypeError` that names the place of any other value."""
    tensors: dict[str, Tensor] = {}
    return _node(tree, (), tensors), tensors


def unflatten(node: Any, tensors: Mapping[str, Tensor], depth: int = 0) -> Any:
    """Rebuild the tree; raises `ValueError`, `TypeError` or `KeyError` for anything that `flatten` never writes."""
    if depth > MAX_DEPTH:
        raise ValueError("the tree is too deep")
    if node is None or isinstance(node, bool | int | float | str):
        return node
    if isinstance(node, list):
        return [unflatten(item, tensors, depth + 1) for item in node]
    if len(node) != 1:
        raise ValueError("an object of the tree does not name its kind")
    ((kind, content),) = node.items()
    if kind == "float":
        return _float_of(content)
    if kind == "tensor":
        return tensors[content]
    if kind == "tuple":
        return tuple(unflatten(item, tensors, depth + 1) for item in content)
    pairs = ((unflatten(key, {}, depth + 1), unflatten(item, tensors, depth + 1)) for key, item in content)
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
    node, tensors = flatten(key)
    if tensors:
        raise TypeError(f"{_place(path)} has a tensor for a key; a checkpoint cannot hold that.")
    return node


def _free_name(path: tuple[str, ...], tensors: Mapping[str, Tensor]) -> str:
    """Name after the path, with a number if two paths give the same name."""
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
