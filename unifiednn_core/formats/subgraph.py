"""A part of the graph of a network as a graph of its own, over the weights of the whole; and what its operators write.

Where a network may be cut, and what a cut hands on, is for those to decide who cut it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import fx, nn
from torch.utils._pytree import tree_leaves


def subgraph(
    network: nn.Module,
    nodes: Iterable[fx.Node],
    inputs: Mapping[fx.Node, str],
    returned: fx.node.Argument,
    class_name: str = "GraphModule",
    tracer: type[fx.Tracer] | None = None,
) -> fx.GraphModule:
    """Return a graph that computes these nodes and returns `returned`, of values in the graph of `network`.

    `inputs` names values that come in; those of one name are one input. What else the nodes read, such as weights and
    constants, the graph reads or computes itself. Copies of it are traced by a `tracer`.
    """
    graph = fx.Graph(tracer_cls=tracer)
    given = {name: graph.placeholder(name) for name in dict.fromkeys(inputs.values())}
    copies = {node: given[name] for node, name in inputs.items()}

    def copied(node: fx.Node) -> fx.Node:
        if node not in copies:
            copies[node] = graph.node_copy(node, copied)
        return copies[node]

    for node in nodes:
        copied(node)
    graph.output(fx.map_arg(returned, copied))
    return fx.GraphModule(network, graph, class_name=class_name)


@dataclass(frozen=True, slots=True)
class GraphPart:
    """Operators of a graph that follow one another, and the names of the values that they take and return."""

    module: fx.GraphModule
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    """Empty for the last one, which returns what the network returns."""
    last_used: tuple[str, ...]
    """Inputs that no later part needs."""


def graph_parts(network: nn.Module, graph: fx.Graph, cuts: Sequence[int], class_name: str) -> list[GraphPart]:
    """Cut a graph over the weights of a network before these of its operators."""
    nodes, end = [node for node in graph.nodes if node.op == "call_function"], graph.output_node()
    ranges = [nodes[first:behind] for first, behind in pairwise((0, *cuts, len(nodes)))]
    last = len(ranges) - 1
    place = {node: number for number, members in enumerate(ranges) for node in members} | {end: last}
    read = {node: {place[user] for user in node.users} for node in graph.nodes}
    inputs: list[list[fx.Node]] = [[] for _ in ranges]
    for node in graph.nodes:
        if node.op != "get_attr":
            for reader in read[node] - {place.get(node)}:
                inputs[reader].append(node)

    def made(number: int) -> GraphPart:
        given = {node: node.name for node in inputs[number]}
        outputs = [node for node in ranges[number] if max(read[node], default=0) > number]
        returned = end.args[0] if number == last else tuple(outputs)
        module = subgraph(network, ranges[number], given, returned, class_name)
        last_used = (node.name for node in given if max(read[node]) == number)
        return GraphPart(module, tuple(given.values()), tuple(node.name for node in outputs), tuple(last_used))

    return [made(number) for number in range(len(ranges))]


def schema_of(node: fx.Node) -> Any:
    """Schema of the operator of a node; None for what is none."""
    target = getattr(node.target, "operator", node.target)  # that of a form of `own_draws`
    return target._schema if isinstance(target, torch._ops.OpOverload) else None


def given_to(node: fx.Node) -> dict[str, Any]:
    """Arguments of an operator by the names of its schema."""
    return dict(zip((one.name for one in schema_of(node).arguments), node.args, strict=False)) | dict(node.kwargs)


def changed_by(node: fx.Node) -> frozenset[fx.Node]:
    """Nodes whose values an operator writes into, by its schema."""
    if (schema := schema_of(node)) is None:
        return frozenset()
    given = given_to(node)
    aliased = (one for one in schema.arguments if one.alias_info is not None and one.alias_info.is_write)
    return nodes_in([given.get(one.name) for one in aliased])


def nodes_in(argument: Any) -> frozenset[fx.Node]:
    """Nodes in an argument, which may be nested."""
    return frozenset(value for value in tree_leaves(argument) if isinstance(value, fx.Node))
