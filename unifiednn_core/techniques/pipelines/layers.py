"""A network as consecutive layers: it can be cut wherever one tensor alone goes on to what is after."""

from dataclasses import dataclass

from torch import fx, nn

from unifiednn_core.base.errors import BadInput


@dataclass(frozen=True, slots=True)
class Chain:
    """A network of one input and one output, and the nodes of its graph layer by layer."""

    network: nn.Module
    given: fx.Node
    layers: tuple[tuple[fx.Node, ...], ...]

    def part(self, first: int, end: int) -> nn.Module:
        """Layers `first` to `end` without `end`; it shares weights and buffers with the network, under their names."""
        graph = fx.Graph()
        before = self.layers[first - 1][-1] if first else self.given
        copies = {before: graph.placeholder("inputs")}
        for layer in self.layers[first:end]:
            for node in layer:
                copies[node] = graph.node_copy(node, copies.__getitem__)
        graph.output(copies[self.layers[end - 1][-1]])
        return fx.GraphModule(self.network, graph).train(self.network.training)


def chain(network: nn.Module) -> Chain:
    """Find the layers of a network. Raises `BadInput` if it cannot be traced or has several inputs or outputs."""
    try:
        traced = fx.symbolic_trace(network)
    except Exception as error:  # whatever a forward does with what is no tensor
        raise _not_cut(f"cannot be traced ({error})") from error
    given = [node for node in traced.graph.nodes if node.op == "placeholder"]
    computed = [node for node in traced.graph.nodes if node.op not in ("placeholder", "output")]
    [output] = [node for node in traced.graph.nodes if node.op == "output"]
    if len(given) != 1 or not isinstance(output.args[0], fx.Node):
        raise _not_cut(f"has {len(given)} inputs" if len(given) != 1 else "has several outputs")
    places = {node: place for place, node in enumerate(computed)}
    layers, first = [], 0
    needed_at = _last_use(given[0], places)
    for place, node in enumerate(computed):
        if needed_at <= place and not any(_writes_into(user, traced) for user in node.users):
            layers.append(tuple(computed[first : place + 1]))
            first = place + 1
        needed_at = max(needed_at, _last_use(node, places))
    return Chain(traced, given[0], tuple(layers))


def _last_use(node: fx.Node, places: dict[fx.Node, int]) -> int:
    return max((places[user] for user in node.users if user in places), default=-1)


def _writes_into(user: fx.Node, traced: fx.GraphModule) -> bool:
    """Whether an operator changes its input in place, which the stage before still needs."""
    if user.op == "call_module":
        return bool(getattr(traced.get_submodule(str(user.target)), "inplace", False))
    name = str(getattr(user.target, "__name__", user.target))
    return bool(user.kwargs.get("inplace")) or (name.endswith("_") and not name.startswith("_"))


def _not_cut(problem: str) -> BadInput:
    return BadInput.of(
        "Not a pipeline",
        field="model",
        message=f"The network {problem}, so it cannot be cut into stages.",
        remedy="Train it in one piece.",
    )
