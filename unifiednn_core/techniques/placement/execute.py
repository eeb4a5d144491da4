"""A placed network at work: parts of its graph, each on its device, with the bits of the whole one.

Random draws and sums of gradients come in the order of the program. Each part of the graph of a file checks the
contracts of its operators, as the whole graph does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.autograd.function import FunctionCtx

from unifiednn_core.formats.draws import graphs_of, is_of_file
from unifiednn_core.formats.guard import GraphGuard
from unifiednn_core.formats.subgraph import GraphPart, changed_by, graph_parts
from unifiednn_core.techniques.placement.graph import CostGraph


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


class PlacedNetwork:
    """A network on several devices.

    Entries of `devices` may be equal: two times `cpu` are two logical devices, between which tensors are copied as
    between real ones. The weights are moved to their devices and stay those of `module`, which says whether it trains.
    """

    def __init__(
        self, module: fx.GraphModule, graph: CostGraph, device_of: Sequence[int], devices: Sequence[torch.device]
    ):
        """`device_of` says where each operator of `graph` runs, which `costs` made of this network."""
        self.module, self.devices = module, tuple(devices)
        placed = {op.name: device for op, device in zip(graph.ops, device_of, strict=True)}
        owners = {op.name: graph.ops[graph.storage(number)].name for number, op in enumerate(graph.ops)}
        of_file = is_of_file(module)
        graphs = [one.graph for one in graphs_of(module)] if of_file else [module.graph]
        homes = _homes(graphs[0], placed)
        _move_weights(module, {name: self.devices[device] for name, device in homes.items()})
        self.training = cut(module, graphs[0], placed, owners, self.devices)
        self.evaluation = self.training
        if len(graphs) > 1:
            self.evaluation = cut(module, graphs[1], _beside(graphs[1], homes), {}, self.devices)
        if of_file:
            for part in {id(part): part for one in (self.training, self.evaluation) for part in one.parts}.values():
                part.module.forward = GraphGuard(part.module)

    def __call__(self, *inputs: Tensor) -> Any:
        """Run the network; its outputs are on the device of its last operator. Raises `ContractBroken`."""
        whole: CutGraph = self.training if self.module.training else self.evaluation
        values: dict[str, Any] = {
            name: one.to(self.devices[device])
            for (name, device), one in zip(whole.inputs.items(), whole.codegen.process_inputs(*inputs), strict=True)
        }
        results: Any = None
        for part in whole.parts:
            part.module.training = self.module.training
            results = part.module(*(values[name] for name in part.inputs))
            for name in part.last_used:
                del values[name]
            if part is not whole.parts[-1]:
                values.update(zip(part.outputs, results, strict=True))
        return whole.codegen.process_outputs(results)


def _homes(graph: fx.Graph, device_of: Mapping[str, int]) -> dict[str, int]:
    """Find the device of each weight: that of the operators that read it."""
    found: dict[str, int] = {}
    for node in graph.find_nodes(op="get_attr"):
        for reader in node.users:
            found.setdefault(str(node.target), device_of[reader.name])
    return found


def _beside(graph: fx.Graph, homes: Mapping[str, int]) -> dict[str, int]:
    """Place a graph of evaluation: each operator where its weights are, or else where its last input is."""
    found: dict[str, int] = {}
    for node in graph.nodes:
        if node.op == "get_attr":
            continue
        weights = [homes[str(one.target)] for one in node.all_input_nodes if str(one.target) in homes]
        values = [found[one.name] for one in node.all_input_nodes if one.name in found]
        found[node.name] = (weights or values[-1:] or [0])[0]
    return found


def _move_weights(module: nn.Module, homes: Mapping[str, torch.device]) -> None:
    """Move parameters and buffers; the parameters stay the same objects, so that an optimizer keeps them."""
    for name, device in homes.items():
        folder, _, leaf = name.rpartition(".")
        holder = module.get_submodule(folder)
        value = getattr(holder, leaf)
        if isinstance(value, nn.Parameter):
            value.data = value.data.to(device)
        elif isinstance(value, Tensor):
            holder._buffers[leaf] = value.to(device)
