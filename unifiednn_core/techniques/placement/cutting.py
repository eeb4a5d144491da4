"""A graph of operators cut in parts, each on one device, in the order of the program.

Where an operator reads a value of another device, the value is copied there once (`bring`). Each reading goes through a
`hop` of its own right before the operator, so that gradients come back one by one, in the order in which they come
without a cut: sums keep their bits. After a change in place the next reading copies anew.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx
from torch.autograd.function import FunctionCtx

from unifiednn_core.techniques.placement.costs import changed_by

Key = tuple[str, int, int]
"""A value: the node that makes it, the device where it is, and the number of changes in place before it was copied."""


@dataclass(frozen=True, slots=True)
class PlacedPart:
    """Operators on one device that run one after another."""

    module: fx.GraphModule
    device: int
    inputs: tuple[Key, ...]
    outputs: tuple[Key, ...]
    done_with: tuple[Key, ...]
    """Values that no later part reads."""


@dataclass(frozen=True, slots=True)
class CutGraph:
    """A whole graph: where its inputs have to be, and its parts. The last part returns what the network returns."""

    inputs: tuple[Key, ...]
    parts: tuple[PlacedPart, ...]
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
    makers: list[_Maker] = []
    made_by: dict[Key, _Maker] = {}
    changes: dict[str, int] = {}
    home = {node.name: (node.name, device_of[node.name], 0) for node in graph.nodes if node.op != "get_attr"}
    for node in graph.nodes:
        if node.op in ("get_attr", "placeholder"):
            continue
        device = device_of[node.name]
        if not makers or makers[-1].device != device:
            makers.append(_Maker(device, devices[device]))
        maker = makers[-1]
        values: dict[fx.Node, fx.Node] = {}
        for argument in node.all_input_nodes:
            if argument.op == "get_attr":
                values[argument] = maker.weight(argument)
                continue
            source = home[argument.name]
            if source[1] == device:
                values[argument] = maker.value(source, made_by)
                continue
            owner = owner_of.get(argument.name, f"device {source[1]}")
            copy = (argument.name, device, 1 + changes.get(owner, 0))
            values[argument] = maker.hop(source, copy, made_by)
        maker.add(node, values, home[node.name], made_by)
        for argument in changed_by(node):
            if argument.op != "get_attr":
                owner = owner_of.get(argument.name, f"device {device}")
                changes[owner] = changes.get(owner, 0) + 1
    inputs = tuple(home[node.name] for node in graph.find_nodes(op="placeholder"))
    last_reader = {key: number for number, maker in enumerate(makers) for key in maker.inputs}
    parts = []
    for number, maker in enumerate(makers):
        done = tuple(key for key in maker.inputs if last_reader[key] == number)
        outputs = tuple(key for key in maker.made if key in last_reader)
        parts.append(PlacedPart(maker.finish(module, outputs), maker.device, tuple(maker.inputs), outputs, done))
    return CutGraph(inputs, tuple(parts), graph._codegen)


@dataclass
class _Maker:
    """Makes one part."""

    device: int
    place: torch.device
    graph: fx.Graph = field(default_factory=fx.Graph)
    inputs: dict[Key, fx.Node] = field(default_factory=dict)
    made: dict[Key, fx.Node] = field(default_factory=dict)
    weights: dict[str, fx.Node] = field(default_factory=dict)
    ended: bool = False

    def weight(self, node: fx.Node) -> fx.Node:
        """Read a weight, or the flag of the mode."""
        name = str(node.target)
        if name not in self.weights:
            self.weights[name] = self.graph.get_attr(name)
        return self.weights[name]

    def value(self, key: Key, made_by: Mapping[Key, "_Maker"]) -> fx.Node:
        """Read a value that is on this device, or comes in from another part."""
        if made_by.get(key) is self:
            return self.made[key]
        if key not in self.inputs:
            with self.graph.inserting_before(self._first()):
                self.inputs[key] = self.graph.placeholder(key[0] if key[2] == 0 else f"{key[0]}_here")
        return self.inputs[key]

    def hop(self, source: Key, copy: Key, made_by: dict[Key, "_Maker"]) -> fx.Node:
        """Read a value of another device."""
        there = self.value(source, made_by)
        if copy not in made_by:
            made_by[copy] = self
            self.made[copy] = self.graph.call_function(bring, (there, self.place))
        return self.graph.call_function(hop, (there, self.value(copy, made_by)))

    def add(self, node: fx.Node, values: Mapping[fx.Node, fx.Node], key: Key, made_by: dict[Key, "_Maker"]) -> None:
        """Add an operator, or the end of the network."""
        made_by[key] = self
        self.made[key] = self.graph.node_copy(node, values.__getitem__)
        self.ended = node.op == "output"

    def finish(self, module: fx.GraphModule, outputs: Sequence[Key]) -> fx.GraphModule:
        """Return the part as a module over the weights of the whole one."""
        if not self.ended:
            self.graph.output(tuple(self.made[key] for key in outputs))
        return fx.GraphModule(module, self.graph, class_name="Part")

    def _first(self) -> fx.Node:
        """The first node that is no input."""
        return next((node for node in self.graph.nodes if node.op != "placeholder"), self.graph._root)


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
