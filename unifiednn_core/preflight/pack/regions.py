"""Writes the regions of an exported graph out in place, such as `with torch.no_grad():`.

Export keeps a region without gradients as a graph of its own. Here its operators stand in the one graph, on detached
operands: then they record no gradient, as in the code.
"""

import re
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram

from unifiednn_core.base.errors import BadInput

_GRADIENTS = "wrap_with_set_grad_enabled"
_AUTOCAST = "wrap_with_autocast"
_REMEDIES = {
    _AUTOCAST: ("uses torch.autocast", "Leave it out of forward: the precision is that of the run."),
    "cond": ("uses torch.cond", "Compute both sides, and choose with torch.where."),
    "while_loop": ("uses while_loop", "Write a loop with a fixed number of turns."),
    "flex_attention": ("uses flex_attention", "Use torch.nn.functional.scaled_dot_product_attention."),
}


def without_regions(program: ExportedProgram, name: str) -> ExportedProgram:
    """Write out the regions of a program, which this changes; raises `BadInput` on `name` for any other sub-graph."""
    module = program.graph_module
    for part in module.modules():
        if isinstance(part, fx.GraphModule):
            _write_results_in_place(part.graph)
    if not any(isinstance(node.target, torch._ops.HigherOrderOperator) for node in module.graph.nodes):
        return program
    writer = _Writer(module.graph, set(program.graph_signature.inputs_to_parameters), name)
    for node in [*module.graph.nodes]:
        if not isinstance(node.target, torch._ops.HigherOrderOperator):
            writer.follow(node)
            continue
        with module.graph.inserting_before(node):
            results = writer.region(module, node, node.args, gradients=True)
        for user in [*node.users]:
            result = results[user.args[1]]
            program.graph_signature.replace_all_uses(user.name, result.name)
            user.replace_all_uses_with(result)
            module.graph.erase_node(user)
        module.graph.erase_node(node)
    for node in [*module.graph.nodes]:
        if node.op == "get_attr" and not node.users:
            module.graph.erase_node(node)
    module.delete_all_unused_submodules()
    module.recompile()
    return program


class _Writer:
    """Adds the operators of regions to a graph, and knows which values may have a gradient."""

    def __init__(self, graph: fx.Graph, parameters: set[str], name: str):
        self._graph, self._name = graph, name
        self._live = {node for node in graph.nodes if node.op == "placeholder" and node.name in parameters}
        self._written: dict[fx.Node, fx.Node] = {}
        """Result of an operator in place, and the value that it changed."""

    def follow(self, node: fx.Node) -> None:
        """Note whether the result of a node may have a gradient."""
        if self._live.intersection(node.all_input_nodes):
            self._live |= {node, *_changed(node)}

    def region(self, holder: fx.GraphModule, node: fx.Node, args: Sequence[Any], *, gradients: bool) -> list[fx.Node]:
        """Write out the region that `node` calls with `args`, inside one with or without `gradients`."""
        kind = str(node.target)
        if kind == _GRADIENTS:
            on, called, *operands = args
        elif kind == _AUTOCAST and args[2] is False:
            on, (called, *operands) = gradients, args[4:]
        else:
            raise self._refused(kind, node)
        inner = holder.get_submodule(called.target)
        if not isinstance(inner, fx.GraphModule):
            raise self._refused(kind, node)
        values: dict[fx.Node, fx.Node] = {}
        returned: Any = ()
        places = iter(operands)
        for part in inner.graph.nodes:
            if part.op == "placeholder":
                values[part] = next(places)
            elif part.op == "get_attr":
                values[part] = part
            elif part.op == "output":
                returned = part.args[0]
            elif isinstance(part.target, torch._ops.HigherOrderOperator):
                given = fx.map_arg(part.args, values.__getitem__)
                results = self.region(inner, part, given, gradients=on)
                values |= {user: results[user.args[1]] for user in part.users}
            elif part not in values:
                values[part] = self._copied(part, values, gradients=on)
        return [self._written.get(values[part], values[part]) for part in returned]

    def _copied(self, part: fx.Node, values: dict[fx.Node, fx.Node], *, gradients: bool) -> fx.Node:
        def operand(used: fx.Node) -> fx.Node:
            value = values[used]
            if gradients:
                return self._written.get(value, value)
            return self._detached(value) if value in self._live else value

        copied = self._graph.node_copy(part, operand)
        if gradients:
            self.follow(copied)
        for changed in _changed(part):
            self._written[copied] = self._written.get(values[changed], values[changed])
        return copied

    def _detached(self, value: fx.Node) -> fx.Node:
        detached = self._graph.call_function(torch.ops.aten.detach.default, (value,))
        detached.meta = {**value.meta, "val": value.meta["val"].detach()}
        return detached

    def _refused(self, kind: str, node: fx.Node) -> BadInput:
        what, remedy = _REMEDIES.get(kind, (f"uses {kind}, a graph in the graph", "Write it with plain operators."))
        place = re.findall(r"line (\d+).*\n\s*(.*)", str(node.meta.get("stack_trace", "")))
        line = f" It is line {place[-1][0]}: `{place[-1][1]}`." if place else ""
        return BadInput.of("Cannot be exported", self._name, f"The network {what}.{line}", remedy)


def _write_results_in_place(graph: fx.Graph) -> None:
    """Make `div(a, b, out=c)` `c.copy_(div(a, b))`: the operators that write into given memory are not taken."""
    for node in graph.nodes:
        plain = _without_out(node)
        if plain is None:
            continue
        out, kwargs = node.kwargs["out"], {name: value for name, value in node.kwargs.items() if name != "out"}
        with graph.inserting_before(node):
            result = graph.call_function(plain, node.args, kwargs)
            copied = graph.call_function(torch.ops.aten.copy_.default, (out, result))
        result.meta, copied.meta = dict(node.meta), dict(node.meta)
        node.replace_all_uses_with(copied)
        graph.erase_node(node)


def _without_out(node: fx.Node) -> torch._ops.OpOverload | None:
    """The operator that returns what this one writes into its argument `out`, of the same shape."""
    function, out = node.target, node.kwargs.get("out")
    if not isinstance(function, torch._ops.OpOverload) or not isinstance(out, fx.Node):
        return None
    if out.meta["val"].shape != node.meta["val"].shape or out.meta["val"].dtype != node.meta["val"].dtype:
        return None
    wanted = {name: kind for name, kind in _arguments(function).items() if name != "out"}
    packet = function.overloadpacket
    overloads = [getattr(packet, name) for name in packet.overloads()]
    return next((each for each in overloads if _arguments(each) == wanted), None)


def _arguments(function: torch._ops.OpOverload) -> dict[str, str]:
    return {argument.name: str(argument.type) for argument in function._schema.arguments}


def _changed(node: fx.Node) -> list[fx.Node]:
    """The value that a node changes in place and returns."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return []
    schema = node.target._schema
    if not schema.arguments or len(schema.returns) != 1:
        return []
    first, given = schema.arguments[0].alias_info, node.args[0] if node.args else None
    return [given] if first is not None and first.is_write and isinstance(given, fx.Node) else []
