"""A network as consecutive layers: it can be cut wherever one tensor alone goes on to what is after."""

from dataclasses import dataclass

from torch import fx, nn

from unifiednn_core.base.errors import BadInput
from unifiednn_core.formats.subgraph import subgraph


class BufferTracer(fx.Tracer):
    """Records what a forward writes into buffers, which else happens once, in tracing, and never again."""

    proxy_buffer_attributes = True


@dataclass(frozen=True, slots=True)
class Chain:
    """A network of one input and one output, and the nodes of its graph layer by layer."""

    network: nn.Module
    given: fx.Node
    layers: tuple[tuple[fx.Node, ...], ...]
    ends: tuple[fx.Node, ...]
    """What each layer hands on."""

    def part(self, first: int, end: int) -> nn.Module:
        """Layers `first` to `end` without `end`; it shares weights and buffers with the network, under their names."""
        before = self.ends[first - 1] if first else self.given
        nodes = [node for layer in self.layers[first:end] for node in layer]
        made = subgraph(self.network, nodes, {before: "inputs"}, self.ends[end - 1], tracer=BufferTracer)
        return made.train(self.network.training)


def chain(network: nn.Module) -> Chain:
    """Find the layers of a network. Raises `BadInput` if it cannot be traced or has several inputs or outputs."""
    try:
        traced = network
        if not isinstance(traced, fx.GraphModule):
            traced = fx.GraphModule(network, BufferTracer().trace(network))
    except Exception as error:  # whatever a forward does with what is no tensor
        raise _not_cut(f"cannot be traced ({error})") from error
    given = [node for node in traced.graph.nodes if node.op == "placeholder"]
    [output] = [node for node in traced.graph.nodes if node.op == "output"]
    returned = output.args[0]
    if isinstance(returned, (tuple, list)) and len(returned) == 1:
        [returned] = returned
    if len(given) != 1 or not isinstance(returned, fx.Node):
        raise _not_cut(f"has {len(given)} inputs" if len(given) != 1 else "has several outputs")
    computed = _computed(given[0], traced)
    places = {node: place for place, node in enumerate(computed)} | {output: len(computed)}
    layers, ends, first = [], [], 0
    needed_at = _last_use(given[0], places)
    for place, node in enumerate(computed):
        if needed_at <= place and node is not returned and not any(_writes_into(user, traced) for user in node.users):
            layers.append(tuple(computed[first : place + 1]))
            ends.append(node)
            first = place + 1
        needed_at = max(needed_at, _last_use(node, places))
    return Chain(traced, given[0], (*layers, tuple(computed[first:])), (*ends, returned))


def _computed(given: fx.Node, traced: fx.GraphModule) -> list[fx.Node]:
    """What follows from the input or changes something in place, in order; all else is weights and constants."""
    found: dict[fx.Node, None] = {}
    for node in traced.graph.nodes:
        follows = bool(node.users) and any(one is given or one in found for one in node.all_input_nodes)
        if node.op not in ("placeholder", "output") and (follows or _writes_into(node, traced)):
            found[node] = None
    return list(found)


def _last_use(node: fx.Node, places: dict[fx.Node, int]) -> int:
    return max((places[user] for user in node.users if user in places), default=-1)


def _writes_into(user: fx.Node, traced: fx.GraphModule) -> bool:
    """Whether an operator changes one of its inputs in place."""
    if user.op == "call_module":
        return bool(getattr(traced.get_submodule(str(user.target)), "inplace", False))
    if user.op == "get_attr":
        return False
    name = str(getattr(user.target, "__name__", user.target)).split(".")[0]
    return bool(user.kwargs.get("inplace")) or (name.endswith("_") and not name.startswith("_"))


def _not_cut(problem: str) -> BadInput:
    return BadInput.of(
        "Not a pipeline",
        field="model",
        message=f"The network {problem}, so it cannot be cut into stages.",
        remedy="Train it in one piece.",
    )
