"""Parts of the graph of a network as graphs of their own, over the weights of the whole; and what its operators write.

`segments` cuts the graph of a `.pt2` file into graphs that compute one after the other.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import fx, nn
from torch.utils._pytree import tree_leaves

from unifiednn_core.base.errors import BadInput
from unifiednn_core.formats.guard import GraphGuard


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


_ATEN = torch.ops.aten
_POSITIVE = {_ATEN.relu, _ATEN.relu_, _ATEN.sigmoid, _ATEN.softplus, _ATEN.softmax, _ATEN.hardsigmoid, _ATEN.relu6}
_KEEPS_SIGNS = {
    _ATEN.dropout,
    _ATEN.flatten,
    _ATEN.view,
    _ATEN.reshape,
    _ATEN.max_pool2d,
    _ATEN.avg_pool2d,
    _ATEN.adaptive_avg_pool2d,
}
_SUMS = {_ATEN.add, _ATEN.add_, _ATEN.cat}


def segments(module: fx.GraphModule, at: Sequence[str]) -> list[nn.Module]:
    """Cut a graph behind these operators, each by a name of `names`, or by that of the layer whose weights it takes.

    Raises `BadInput`.
    """
    guard = module.forward
    if isinstance(guard, GraphGuard) and len(guard.parts) > 1:
        raise refusal("Its file has a graph of its own for evaluation. Export it without one.")
    nodes = list(module.graph.nodes)
    ends = [_node(nodes, name) for name in at]
    order = {node: place for place, node in enumerate(nodes)}
    if any(order[first] >= order[second] for first, second in pairwise(ends)):
        raise refusal(f"{', '.join(map(repr, at))} are not in the order of the network.")
    [result] = [node for node in nodes if node.op == "output"]
    cuts: list[fx.Node | None] = [None, *ends]
    return [_segment(module, begin, end) for begin, end in zip(cuts, [*ends, result], strict=True)]


def is_positive(part: nn.Module) -> bool:
    """Whether what a part returns is never negative, as far as its last operators say so."""
    if not isinstance(part, fx.GraphModule):
        return False
    [result] = [node for node in part.graph.nodes if node.op == "output"]
    return _positive(result.args[0])


def _positive(value: object) -> bool:
    if not isinstance(value, fx.Node):
        return False
    if _packet(value) in _SUMS:
        return len(value.all_input_nodes) > 1 and all(map(_positive, value.all_input_nodes))
    return _packet(value) in _POSITIVE or (_packet(value) in _KEEPS_SIGNS and _positive(value.args[0]))


def _packet(node: fx.Node) -> object:
    target = getattr(node.target, "operator", node.target)
    return getattr(target, "overloadpacket", None)


def names(nodes: Sequence[fx.Node]) -> dict[str, fx.Node]:
    """The operators of a graph by their short names; from the second on they are numbered: `relu`, `relu_2`."""
    found: dict[str, fx.Node] = {}
    count: Counter[str] = Counter()
    for node in nodes:
        packet = _packet(node)
        if node.op == "call_function" and packet is not None and packet is not _ATEN.sym_size and not _counts(node):
            short = str(packet).rpartition(".")[2]
            count[short] += 1
            found[short if count[short] == 1 else f"{short}_{count[short]}"] = node
    return found


def _node(nodes: Sequence[fx.Node], name: str) -> fx.Node:
    """The operator of this name, or the last that computes with weights of the layer of this name."""
    known = names(nodes)
    own = [
        node
        for node in known.values()
        if any(one.op == "get_attr" and str(one.target).startswith(f"{name}.") for one in node.all_input_nodes)
    ]
    if name not in known and not own:
        shown = ", ".join(list(known)[:40]) + (" …" if len(known) > 40 else "")
        raise refusal(f"It has no layer and no operator '{name}'; its operators in order are {shown}.")
    return known[name] if name in known else own[-1]


def _segment(module: fx.GraphModule, begin: fx.Node | None, end: fx.Node) -> fx.GraphModule:
    """A graph from what `begin` computes, or the input, to what `end` computes."""
    [given] = [node for node in module.graph.nodes if node.op == "placeholder"]
    start = given if begin is None else begin
    kept = _needed(end, start, given)
    layers = {str(node.target).rpartition(".")[0] for node in kept if node.op == "get_attr"}
    for node in module.graph.nodes:  # nothing depends on a counter of batches
        if _counts(node) and str(node.args[0].target).rpartition(".")[0] in layers:
            kept |= {node, *node.all_input_nodes}
    # The device of the input and its number of samples are those of what the part gets.
    inputs, returned = dict.fromkeys((start, given), given.name), end if end.op != "output" else _only(end)
    computed = [node for node in module.graph.nodes if node in kept and node.op != "output"]
    part = subgraph(module, computed, inputs, returned, "ExportedPart")
    return _guarded(part, module)


def _guarded(part: fx.GraphModule, whole: fx.GraphModule) -> fx.GraphModule:
    """Guard a part, and its copies; its buffers are kept as those of the whole are."""
    stored = whole.state_dict().keys()
    for name, buffer in list(part.named_buffers()):
        if name not in stored:  # fx makes every buffer a persistent one
            folder, _, leaf = name.rpartition(".")
            part.get_submodule(folder).register_buffer(leaf, buffer, persistent=False)
    part.forward = GraphGuard(part)

    def copied(memo: dict[int, Any]) -> fx.GraphModule:
        again: fx.GraphModule = fx.GraphModule.__deepcopy__(part, memo)
        return _guarded(again, part)

    part.__dict__["__deepcopy__"] = copied
    return part


def _needed(end: fx.Node, start: fx.Node, given: fx.Node) -> set[fx.Node]:
    """Nodes between `start` and `end`; raises `BadInput` if `end` depends on what is before `start` in another way."""
    found: set[fx.Node] = set()
    waiting = [end]
    while waiting:
        node = waiting.pop()
        if node in found or node is start:
            continue
        found.add(node)
        if node is given and start is not given:
            raise refusal(f"What follows '{start.name}' depends on more than its result.")
        if start is given or not _is_of_samples(node, given):
            waiting += node.all_input_nodes
    if start is not end and start not in {one for node in found for one in node.all_input_nodes}:
        raise refusal(f"The result of '{start.name}' leads nowhere.")
    return found


def _is_of_samples(node: fx.Node, given: fx.Node) -> bool:
    """Whether a node reads the device or the number of samples of the input, which are those of every value."""
    if node.op != "call_function" or node.all_input_nodes != [given]:
        return False
    if node.target is getattr:
        return True
    return _packet(node) is _ATEN.sym_size and node.args[1:] == (0,)


def _counts(node: fx.Node) -> bool:
    """Whether a node adds to a buffer in place: a counter of batches."""
    first = node.args[0] if node.args else None
    counts = node.op == "call_function" and _packet(node) is _ATEN.add_
    return counts and isinstance(first, fx.Node) and first.op == "get_attr"


def _only(end: fx.Node) -> fx.Node:
    if not isinstance(end.args[0], fx.Node):
        raise refusal("It returns several outputs.")
    return end.args[0]


def refusal(message: str) -> BadInput:
    """The finding for a network that cannot be cut so."""
    remedy = "Cut it at another layer, or train it in one piece: remove 'split'."
    return BadInput.of("Split", "split", f"The network cannot be split so. {message}", remedy)
