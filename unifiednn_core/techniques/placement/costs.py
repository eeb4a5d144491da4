"""What each operator of a network costs on this machine: seconds and bytes, forward and backward, node by node."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.flop_counter import FlopCounterMode

from unifiednn_core.base.errors import BadInput
from unifiednn_core.formats.contracts.table import check_call
from unifiednn_core.formats.draws import is_of_file
from unifiednn_core.formats.guard import name_of
from unifiednn_core.formats.subgraph import changed_by
from unifiednn_core.techniques.placement.graph import CostGraph, Edge, Op, Weight

KINDS = frozenset({"placeholder", "get_attr", "call_function", "output"})


@dataclass(frozen=True, slots=True)
class MachineRates:
    """A machine as two numbers, for costs by formulas instead of by the clock."""

    flops_per_s: float = 5e10
    bytes_per_s: float = 1e10

    def seconds(self, flops: int, size_bytes: int) -> float:
        """Return seconds of an operator that reads and writes so many bytes."""
        return flops / self.flops_per_s + size_bytes / self.bytes_per_s


def exported(network: nn.Module, *inputs: Tensor) -> fx.GraphModule:
    """Export a network of our own; a network of a `.pt2` file is such a graph already."""
    graph = torch.export.export(network, inputs).module(check_guards=False)
    if not isinstance(graph, fx.GraphModule):
        raise TypeError(f"torch.export made {type(graph).__name__} of a network")
    return graph


def costs(
    module: fx.GraphModule,
    inputs: Sequence[Tensor],
    *,
    rates: MachineRates | None = None,
    repeats: int = 3,
    optimizer_tensors: int = 1,
) -> CostGraph:
    """Run each operator by itself, and measure it; in train mode backward, too. Operators are named like the nodes.

    With `rates`, seconds follow from counted operations and bytes; they are equal on every machine. Otherwise they are
    the shortest of `repeats` runs. A trained weight also needs its gradient, and as many tensors of its optimizer. The
    network's buffers and random state are left as they are. Raises `BadInput` for a graph that calls modules, and
    `ContractBroken` where a graph of a file calls an operator as it may not.
    """
    strange = next((node for node in module.graph.nodes if node.op not in KINDS), None)
    if strange is not None:
        problem = f"The node '{strange.name}' is a {strange.op}; only exported graphs can be placed."
        raise BadInput.of("Not a graph of operators", "network", problem, "Export the network with torch.export.")
    meter = _Meter(rates, repeats)
    run = _Run(module, meter, is_of_file(module))
    with _untouched(module):
        for node, value in zip(module.graph.find_nodes(op="placeholder"), inputs, strict=True):
            run.place(node, value)
        for node in module.graph.nodes:
            if node.op == "get_attr":
                run.weight(node)
            elif node.op == "call_function":
                run.operator(node)
            elif node.op == "output":
                run.result(node)
    return run.graph(optimizer_tensors)


@dataclass(frozen=True, slots=True)
class _Meter:
    rates: MachineRates | None
    repeats: int

    def seconds(self, action: Callable[[], Any], device: torch.device) -> tuple[float, int, Any]:
        """Return seconds, counted operations, and the result of an action."""
        if self.rates is not None:
            with FlopCounterMode(display=False) as counter:
                result = action()
            return 0.0, counter.get_total_flops(), result
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        start_s = time.perf_counter()
        result = action()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - start_s, 0, result


@dataclass(frozen=True, slots=True)
class _Taken:
    """One operator, run once."""

    fresh: dict[fx.Node, Any]
    """What it got."""
    result: Any
    saved: list[Tensor]
    seconds: tuple[float, float]
    """Forward and backward."""
    flops: tuple[int, int]
    goes_back: bool


@dataclass
class _Run:
    """The values of the graph so far, and what was measured."""

    module: fx.GraphModule
    meter: _Meter
    of_file: bool
    """Whether each call has to keep the contract of its operator."""
    ops: list[Op] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    together: list[tuple[int, ...]] = field(default_factory=list)
    values: dict[fx.Node, Any] = field(default_factory=dict)
    numbers: dict[fx.Node, int] = field(default_factory=dict)
    weights: dict[int, tuple[str, Tensor, set[int]]] = field(default_factory=dict)

    def place(self, node: fx.Node, value: Tensor) -> None:
        """Enter an input of the network."""
        self._add(node, Op(node.name, 0.0, output_bytes=_bytes(value)), value.detach())

    def weight(self, node: fx.Node) -> None:
        """Enter a weight or a buffer; tied ones once."""
        value: Any = self.module
        for part in str(node.target).split("."):
            value = getattr(value, part)
        self.values[node] = value
        if isinstance(value, Tensor):
            self.weights.setdefault(_storage(value), (str(node.target), value, set()))

    def result(self, node: fx.Node) -> None:
        """Enter the end of the network, where all of its outputs are together."""
        self._add(node, Op(node.name, 0.0), None)
        self._connect(node, frozenset())

    def operator(self, node: fx.Node) -> None:
        """Run an operator, several times; enter its costs and its result."""
        taken = [self._taken(node) for _ in range(1 if self.meter.rates else self.meter.repeats)]
        last = taken[-1]
        forward_s, backward_s = (min(times) for times in zip(*(one.seconds for one in taken), strict=True))
        if self.meter.rates is not None:
            given = (one for argument in node.all_input_nodes for one in _tensors(self.values[argument]))
            moved_bytes = sum(map(_bytes, (*given, *_tensors(last.result))))
            forward_s = self.meter.rates.seconds(last.flops[0], moved_bytes)
            backward_s = self.meter.rates.seconds(last.flops[1], 2 * moved_bytes) if last.goes_back else 0.0
        self._enter(node, last, (forward_s, backward_s))

    def _taken(self, node: fx.Node) -> "_Taken":
        """Run an operator forward and back, on inputs that have no past."""
        changed = changed_by(node)
        fresh = {argument: self._fresh(argument, argument in changed) for argument in node.all_input_nodes}
        given = [one for value in fresh.values() for one in _tensors(value)]
        device = next((one.device for one in given), torch.device("cpu"))
        if self.of_file and (name := name_of(node.target)) is not None:  # type: ignore[arg-type]
            check_call(name, *fx.node.map_arg((node.args, node.kwargs), self.values.__getitem__))
        saved: list[Tensor] = []
        with _recorded(saved):
            forward_s, forward_flops, result = self.meter.seconds(partial(_call, node, fresh), device)
        ends = [one for one in _tensors(result) if one.requires_grad]
        if not ends:
            return _Taken(fresh, result, saved, (forward_s, 0.0), (forward_flops, 0), False)
        starts = [one for one in given if one.requires_grad]
        ones = [torch.ones_like(one) for one in ends]
        back = partial(torch.autograd.grad, ends, starts, ones, allow_unused=True)
        backward_s, backward_flops, _ = self.meter.seconds(back, device)
        return _Taken(fresh, result, saved, (forward_s, backward_s), (forward_flops, backward_flops), True)

    def _enter(self, node: fx.Node, taken: "_Taken", seconds: tuple[float, float]) -> None:
        fresh, result = taken.fresh, taken.result
        of_argument = {_storage(one): argument for argument, value in fresh.items() for one in _tensors(value)}
        outputs = {_storage(one): one for one in _tensors(result)}
        new = {place: one for place, one in outputs.items() if place not in of_argument}
        base = next((of_argument[place] for place in outputs if of_argument.get(place) in self.numbers), None)
        kept = {_storage(one): one for one in taken.saved}
        own = {
            place: one
            for place, one in kept.items()
            if place not in of_argument and place not in new and place not in self.weights
        }
        storage = None
        if base is not None and not new:
            above = self.ops[self.numbers[base]].storage
            storage = self.numbers[base] if above is None else above
        op = Op(
            node.name,
            *seconds,
            sum(one.untyped_storage().nbytes() for one in new.values()),
            storage,
            sum(one.untyped_storage().nbytes() for one in own.values()),
            any(place in new for place in kept),
        )
        self._add(node, op, tree_map_only(Tensor, _detached, result))
        if base is not None and new:
            self.together.append((self.numbers[base], self.numbers[node]))
        self._connect(node, frozenset(of_argument[place] for place in kept if place in of_argument))
        for argument in changed_by(node):
            if argument in self.numbers:
                self.together.append((self.numbers[argument], self.numbers[node]))

    def _fresh(self, argument: fx.Node, is_changed: bool) -> Any:
        """Return a value as the operator gets it: of its own in the graph of autograd, and to be changed if it will."""
        value = self.values[argument]
        if argument not in self.numbers:
            return value.clone() if is_changed and isinstance(value, Tensor) else value

        def own(one: Tensor) -> Tensor:
            leaf = one.detach().requires_grad_(one.requires_grad)
            return leaf.clone() if is_changed else leaf

        return tree_map_only(Tensor, own, value)

    def _add(self, node: fx.Node, op: Op, value: Any) -> None:
        self.numbers[node] = len(self.ops)
        self.ops.append(op)
        self.values[node] = value

    def _connect(self, node: fx.Node, kept: frozenset[fx.Node]) -> None:
        here = self.numbers[node]
        for argument in node.all_input_nodes:
            value = self.values[argument]
            if argument in self.numbers:
                size_bytes = sum(map(_bytes, _tensors(value)))
                gradient_bytes = sum(_bytes(one) for one in _tensors(value) if one.requires_grad)
                self.edges.append(Edge(self.numbers[argument], here, size_bytes, gradient_bytes, argument in kept))
            elif isinstance(value, Tensor):
                self.weights[_storage(value)][2].add(here)

    def graph(self, optimizer_tensors: int) -> CostGraph:
        """Return all that was measured."""
        training = self.module.training
        held = [
            Weight(
                name,
                _bytes(value) * (2 + optimizer_tensors if training and value.requires_grad else 1),
                tuple(sorted(ops)),
            )
            for name, value, ops in self.weights.values()
            if ops
        ]
        return CostGraph(tuple(self.ops), tuple(self.edges), tuple(held), tuple(self.together), training)


def _call(node: fx.Node, values: dict[fx.Node, Any]) -> Any:
    arguments = fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
    target: Any = node.target
    return target(*arguments[0], **arguments[1])


def _detached(one: Tensor) -> Tensor:
    """A value without its past; it stays known whether a gradient goes back through it."""
    return one.detach().requires_grad_(one.requires_grad)


def _tensors(value: Any) -> Iterator[Tensor]:
    return (one for one in tree_leaves(value) if isinstance(one, Tensor))


def _storage(one: Tensor) -> int:
    return one.untyped_storage().data_ptr()


def _bytes(one: Tensor) -> int:
    return one.numel() * one.element_size()


@contextmanager
def _recorded(saved: list[Tensor]) -> Iterator[None]:
    def pack(one: Tensor) -> Tensor:
        saved.append(one)
        return one

    with saved_tensors_hooks(pack, lambda one: one):
        yield


@contextmanager
def _untouched(module: nn.Module) -> Iterator[None]:
    """Leave buffers and random state as they are; record gradients in train mode alone."""
    before = [(one, one.clone()) for one in module.buffers()]
    devices = {one.device for one in module.parameters() if one.device.type == "cuda"}
    with torch.random.fork_rng(devices=sorted(devices, key=str)), torch.set_grad_enabled(module.training):
        yield
    with torch.no_grad():
        for one, content in before:
            one.copy_(content)
