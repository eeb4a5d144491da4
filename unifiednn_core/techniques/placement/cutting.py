"""A graph of operators cut in parts, each on one device, in the order of the program.

Where an operator reads a value of another device, the value is copied there once (`bring`). Each reading goes through a
`hop` of its own right before the operator, so that gradients come back one by one, in the order in which they come
without a cut: sums keep their bits. After a change in place the next reading copies anew.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx
from torch.autograd.function import FunctionCtx

from unifiednn_core.formats.subgraph import GraphPart, changed_by, graph_parts


@dataclass(frozen=True, slots=True)
class CutGraph:
    """A whole graph: the devices of its inputs by their names, and its parts, each on one device."""

    inputs: Mapping[str, int]
    parts: tuple[GraphPart, ...]
    codegen: Any
    """Of the graph; says how its inputs and outputs are nested."""


def cut(
    module: fx.GraphModule,
    graph: fx.Graph,
    device_of: Mapping[str, int],
    owner_of: Mapping[str, str],
    devices: Sequence[torch.device],
) -> CutGraph:
    """Cut a graph over the weights of a module; `device_of` and `owner_of` say where each node and its memory is."""
    whole = fx.Graph()
    made: dict[fx.Node, fx.Node] = {}
    copies: dict[tuple[fx.Node, int, int], fx.Node] = {}  # by value, device, and changes in place before the copy
    changes: dict[str, int] = {}
    on: list[int] = []  # devices of operators

    def read(argument: fx.Node, device: int) -> fx.Node:
        if argument.op == "get_attr" or device_of[argument.name] == device:
            return made[argument]
        owner = owner_of.get(argument.name, f"device {device_of[argument.name]}")
        copy = argument, device, changes.get(owner, 0)
        if copy not in copies:
            copies[copy] = whole.call_function(bring, (made[argument], devices[device]))
            on.append(device)
        on.append(device)
        return whole.call_function(hop, (made[argument], copies[copy]))

    for node in graph.nodes:
        device = device_of.get(node.name, 0)
        values = {argument: read(argument, device) for argument in node.all_input_nodes}
        made[node] = whole.node_copy(node, values.__getitem__)
        if node.op == "call_function":
            on.append(device)
        for argument in changed_by(node):
            if argument.op != "get_attr":
                owner = owner_of.get(argument.name, f"device {device}")
                changes[owner] = changes.get(owner, 0) + 1
    inputs = {made[node].name: device_of[node.name] for node in graph.find_nodes(op="placeholder")}
    cuts = [at for at in range(1, len(on)) if on[at] != on[at - 1]]
    return CutGraph(inputs, tuple(graph_parts(module, whole, cuts, "Part")), graph._codegen)


class _Hop(torch.autograd.Function):
    """A copy of a tensor stands for it; its gradient goes back to where the tensor is."""

    @staticmethod
    def forward(ctx: FunctionCtx, there: Tensor, here: Tensor) -> Tensor:
        """Return the copy."""
        ctx.device = there.device  # type: ignore[attr-defined]
        return here.detach()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Return the gradient on the device of the tensor."""
        return gradients[0].to(ctx.device), None


def bring(value: Any, device: torch.device) -> Any:
    """Copy a tensor to a device, even if that is its own; a device becomes this one, and numbers stay as they are."""
    if isinstance(value, torch.device):
        return device
    if not isinstance(value, Tensor):
        return value
    with torch.no_grad():
        return value.to(device, copy=True, non_blocking=device.type == "cuda")  # a host does not wait for copies


def hop(there: Any, here: Any) -> Any:
    """Return the copy `here` of the value `there`, with its past."""
    if not isinstance(there, Tensor) or not there.requires_grad:
        return here
    return _Hop.apply(there, here)  # type: ignore[no-untyped-call]
