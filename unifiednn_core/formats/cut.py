"""Cuts a network into parts that compute one after the other, each with the keys of the whole.

The parts of a network hold its very layers, and nothing but one tensor passes from each to the next. Refused is what
has no such place, and what two parts would share.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, fx, nn

from unifiednn_core.base.units import abbreviated
from unifiednn_core.formats import subgraph
from unifiednn_core.formats.base import (
    Boundary,
    Definition,
    Delivery,
    Input,
    PartOfNetwork,
    count_parameters,
    size_bytes,
)

_LOAD_SCRIPT = """\
from safetensors.torch import load_file

# A part of the network '{whole}', under the names that its weights have there:
# state = network.state_dict()
# state.update(load_file({file!r}))
# network.load_state_dict(state)
state = load_file({file!r})
"""
_POSITIVE = (nn.ReLU, nn.ReLU6, nn.Sigmoid, nn.Softplus, nn.Softmax, nn.Hardsigmoid)
_KEEPS_SIGNS = (
    nn.Dropout,
    nn.Dropout1d,
    nn.Dropout2d,
    nn.Flatten,
    nn.Identity,
    nn.MaxPool1d,
    nn.MaxPool2d,
    nn.AvgPool1d,
    nn.AvgPool2d,
    nn.AdaptiveAvgPool1d,
    nn.AdaptiveAvgPool2d,
    nn.AdaptiveMaxPool1d,
    nn.AdaptiveMaxPool2d,
)


def cut(definition: Definition, at: Sequence[str], place: int, samples: Tensor, whole: str) -> Definition:
    """Define part number `place` (from 1) of a network that is cut behind the layers `at`.

    `samples` are a few inputs, to learn shapes. The RNG stays the same. Raises `BadInput` on the entry `split`.
    """
    _require(len(definition.inputs) == 1 and len(definition.outputs) == 1, "It has several inputs or outputs.")
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        parts = segments(definition.build(), at)
        _require_own(parts)
        boundaries: list[Boundary | None] = [None]
        passed = samples
        for number, part in enumerate(parts, start=1):
            part.eval()
            passed = part(passed)
            one = isinstance(passed, Tensor) and passed.dim() > 1 and len(passed) == len(samples)
            _require(one, f"Part {number} does not return one tensor with a row for each sample.")
            _require(passed.is_floating_point(), f"Part {number} does not return real numbers.")
            boundaries.append(Boundary(tuple(passed.shape[1:]), 0.0 if _is_positive(part) else -1.0))
    _require(passed.dim() == 2, "The network does not return one score for each class of a sample.")
    begins, ends = boundaries[place - 1], None if place == len(parts) else boundaries[place]
    chosen = parts[place - 1]

    def build() -> nn.Module:
        return segments(definition.build(), at)[place - 1].train()

    return replace(
        definition,
        build=build,
        parameters=count_parameters(chosen),
        weights_bytes=size_bytes(chosen.state_dict()),
        inputs=definition.inputs if begins is None else (Input(definition.inputs[0].name, begins.shape),),
        operators=(),
        part=PartOfNetwork(whole, passed.shape[1], begins, ends),
    )


def segments(module: nn.Module, at: Sequence[str]) -> list[nn.Module]:
    """Cut a network behind these layers; raises `BadInput`. The parts hold its layers themselves."""
    if isinstance(module, fx.GraphModule):
        return subgraph.segments(module, at)
    leaves = list(_leaves(module))
    _require(type(module) is nn.Sequential, "Its layers do not follow one another in a list.")
    ends = [_end(leaves, name) for name in at]
    _require(ends == sorted(set(ends)) and ends[-1] < len(leaves), _places(leaves, at))
    bounds = [0, *ends, len(leaves)]
    return [_tree(leaves[begin:end]) for begin, end in pairwise(bounds)]


def write(definition: Definition, state_dict: Mapping[str, Tensor], folder: Path, stem: str) -> Delivery:
    """Write the trained weights of a part as `stem.safetensors`."""
    path = folder / f"{stem}.safetensors"
    save_file({name: tensor.contiguous() for name, tensor in state_dict.items()}, path)
    whole = "" if definition.part is None else definition.part.whole
    return Delivery(files=(path,), load_script=_LOAD_SCRIPT.format(whole=whole, file=path.name), call="")


def joined(parts: Sequence[Mapping[str, Tensor]], expected: Mapping[str, object]) -> dict[str, Tensor]:
    """Weights of a network from those of all its parts; raises `ValueError` unless each key is there exactly once."""
    found: dict[str, Tensor] = {}
    for part in parts:
        if twice := found.keys() & part.keys():
            raise ValueError(f"two parts have the weight '{min(twice)}'")
        found |= part
    if found.keys() != set(expected):
        raise ValueError(
            f"the parts do not have the weights of the network: {abbreviated(sorted(found.keys() ^ set(expected)))}"
        )
    return {name: found[name] for name in expected}


def _leaves(module: nn.Module, path: str = "") -> list[tuple[str, nn.Module]]:
    """Layers in the order in which they compute, with their names; lists in lists are taken apart."""
    found: list[tuple[str, nn.Module]] = []
    for name, child in module._modules.items():  # a layer that is there twice counts twice
        if child is not None:
            here = f"{path}{name}"
            found += _leaves(child, f"{here}.") if type(child) is nn.Sequential else [(here, child)]
    return found


def _end(leaves: Sequence[tuple[str, nn.Module]], name: str) -> int:
    """Number of layers up to one of this name, or up to the last one in a list of this name."""
    found = [place for place, (path, _) in enumerate(leaves, start=1) if path == name or path.startswith(f"{name}.")]
    _require(bool(found), _places(leaves, [name]))
    return found[-1]


def _tree(leaves: Sequence[tuple[str, nn.Module]]) -> nn.Sequential:
    """A list of layers under their names in the whole network."""
    children: OrderedDict[str, nn.Module] = OrderedDict()
    inner: dict[str, list[tuple[str, nn.Module]]] = {}
    for path, layer in leaves:
        name, dot, rest = path.partition(".")
        if dot:
            inner.setdefault(name, []).append((rest, layer))
            children[name] = nn.Identity()
        else:
            children[name] = layer
    for name, within in inner.items():
        children[name] = _tree(within)
    return nn.Sequential(children)


def _require_own(parts: Sequence[nn.Module]) -> None:
    """Raise `BadInput` if two parts share a weight."""
    known: dict[int, int] = {}
    for number, part in enumerate(parts):
        _require(any(one.requires_grad for one in part.parameters()), f"Part {number + 1} has no weights to train.")
        for tensor in (*part.parameters(), *part.buffers()):
            shared = known.setdefault(tensor.untyped_storage().data_ptr(), number) != number and tensor.numel() > 0
            _require(
                not shared, f"Parts {known[tensor.untyped_storage().data_ptr()] + 1} and {number + 1} share weights."
            )


def _is_positive(part: nn.Module) -> bool:
    """Whether what a part returns is never negative, as far as its last layers say so."""
    if isinstance(part, fx.GraphModule):
        return subgraph.is_positive(part)
    for _, layer in reversed(_leaves(part)):
        if not isinstance(layer, _KEEPS_SIGNS):
            return isinstance(layer, _POSITIVE)
    return False


def _places(leaves: Sequence[tuple[str, object]], at: Sequence[str]) -> str:
    names = [name for name, _ in leaves[:-1]]
    return f"It cannot be cut behind {', '.join(map(repr, at))}; its layers in order are {abbreviated(names, 40)}."


def _require(met: bool, message: str) -> None:
    if not met:
        raise subgraph.refusal(message)
