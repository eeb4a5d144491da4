"""Cuts the graph of an exported file into a chain of segments, each guarded by operator contracts as the whole is.

A cut is where a single tensor leads on, besides inputs of the network and plain numbers, and where nothing later writes
into memory that leads on: a segment has to find its inputs as they were when it runs again.
"""

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from math import isqrt
from typing import Literal

from torch import Tensor, fx

from unifiednn_core.formats.draws import graphs_of
from unifiednn_core.formats.guard import GraphGuard
from unifiednn_core.formats.subgraph import GraphPart, changed_by, given_to, graph_parts, nodes_in, schema_of
from unifiednn_core.techniques.segments import even_cuts

# Operators that may return their input itself although their schema does not say so.
_SAME = frozenset(
    {
        "dropout",
        "feature_dropout",
        "alpha_dropout",
        "feature_alpha_dropout",
        "type_as",
        "broadcast_tensors",
        "meshgrid",
        "sum_to_size",
        "einsum",
        "pad",
    }
)
_Kind = Literal["tensor", "several", "value"]


@dataclass(frozen=True, slots=True)
class Piece:
    """One segment with its guard."""

    part: GraphPart
    guard: GraphGuard
    buffers: tuple[str, ...]

    def buffers_of(self, network: fx.GraphModule) -> list[Tensor]:
        """Its buffers where they are now."""
        return [network.get_buffer(name) for name in self.buffers]


def pieces_of(network: fx.GraphModule, segments: int | None) -> list[Piece]:
    """Cut the training graph into about so many pieces, by default the root of its operators; one if it has no cut."""
    graph = graphs_of(network)[0].graph
    nodes = [node for node in graph.nodes if node.op == "call_function"]
    operators = sum(_kind(node) != "value" and node.target is not operator.getitem for node in nodes)
    cuts = even_cuts(_allowed(graph, nodes), len(nodes), segments or max(2, isqrt(operators)))
    return [_piece(network, part) for part in graph_parts(network, graph, cuts, "ExportedSegment")]


def _piece(network: fx.GraphModule, part: GraphPart) -> Piece:
    buffers = tuple(name for name, _ in part.module.named_buffers(remove_duplicate=False))
    for tensors in ("_parameters", "_buffers", "_modules"):  # one module with many graphs
        part.module.__dict__[tensors] = network.__dict__[tensors]
    return Piece(part, GraphGuard(part.module), buffers)


def _allowed(graph: fx.Graph, nodes: Sequence[fx.Node]) -> list[int]:
    """Places between the nodes at which the graph can be cut."""
    place_of = {node: place for place, node in enumerate(nodes)}
    places = {node: place_of.get(node, -1) for node in graph.nodes if node.op in ("placeholder", "call_function")}
    last_use = {node: max((place_of[user] for user in node.users if user in place_of), default=-1) for node in places}
    last_write = _last_writes(nodes)
    found = []
    for cut in range(1, len(nodes)):
        crossing = [node for node, place in places.items() if place < cut <= last_use[node]]
        leading = [node for node in crossing if node.op != "placeholder" and _kind(node) != "value"]
        written = any(last_write.get(node, -1) >= cut for node in crossing)
        if len(leading) == 1 and _kind(leading[0]) == "tensor" and not written:
            found.append(cut)
    return found


def _last_writes(nodes: Sequence[fx.Node]) -> dict[fx.Node, int]:
    """Place of the last node that writes into the memory of each value, if there is one."""
    root: dict[fx.Node, fx.Node] = {}

    def root_of(node: fx.Node) -> fx.Node:
        while (above := root.get(node, node)) is not node:
            node = above
        return node

    writes: list[tuple[fx.Node, int]] = []
    for place, node in enumerate(nodes):
        schema = schema_of(node)
        if schema is None:
            shared = node.all_input_nodes if node.target is operator.getitem else []
        else:
            given, name = given_to(node), str(schema.name).removeprefix("aten::").rstrip("_")
            aliased = [one.name for one in schema.arguments if one.alias_info is not None or name in _SAME]
            shared = [value for one in aliased for value in nodes_in(given.get(one))]
        writes += [(value, place) for value in changed_by(node)]
        for one in shared:
            root[root_of(node)] = root_of(one)
    last = dict[fx.Node, int]()
    for node, place in writes:
        last[root_of(node)] = max(place, last.get(root_of(node), -1))
    known = {*nodes, *(one for node in nodes for one in node.all_input_nodes)}
    return {node: last[root_of(node)] for node in known if root_of(node) in last}


def _kind(node: fx.Node) -> _Kind:
    """What a node returns."""
    if node.op == "placeholder":
        return "tensor"
    schema = schema_of(node)
    if schema is None:
        is_part = node.target is operator.getitem and isinstance(node.args[0], fx.Node)
        return "tensor" if is_part and _kind(node.args[0]) == "several" else "value"  # type: ignore[arg-type]
    returns = [str(one.type) for one in schema.returns]
    if returns == ["Tensor"]:
        return "tensor"
    return "several" if any("Tensor" in one for one in returns) else "value"
