"""The directed graph of the hybrid model (paper, figure 2)."""

import json
from dataclasses import asdict, dataclass

from torch import fx, nn

from unifiednn_core.engine.hybrid import HybridModel

# A straight stretch of layers becomes one box of at most this many.
LAYERS_PER_BOX = 4
MAX_BOXES = 60


@dataclass(frozen=True, slots=True)
class LayerGraph:
    """Layers of one network and the connections {u_i, u_j} between them, by index."""

    labels: tuple[str, ...]
    edges: tuple[tuple[int, int], ...]


def graph_document(hybrid: HybridModel) -> str:
    """Layers and edges of each sub-model as JSON; `views.graph` draws it."""
    graphs = ((submodel.name, _shortened(layer_graph(submodel.module))) for submodel in hybrid.submodels)
    return json.dumps([{"name": name, **asdict(graph)} for name, graph in graphs])


def layer_graph(module: nn.Module) -> LayerGraph:
    """Layers of a module as torch.fx traces them; if it cannot, the leaf modules in order of registration."""
    if isinstance(module, fx.GraphModule):
        return _from_fx(module.graph, module)
    try:
        return _from_fx(fx.Tracer().trace(module), module)
    except Exception:  # tracing a foreign forward can raise anything
        leaves = [type(child).__name__ for child in module.modules() if not list(child.children())]
        return LayerGraph(tuple(leaves), tuple((i, i + 1) for i in range(len(leaves) - 1)))


def _from_fx(graph: fx.Graph, module: nn.Module) -> LayerGraph:
    """Turn compute nodes into layers; nodes that only read parameters or make constants are skipped."""
    layers: dict[fx.Node, int] = {}
    labels: list[str] = []
    edges: list[tuple[int, int]] = []
    from_input: set[fx.Node] = set()
    for node in graph.nodes:
        if node.op == "placeholder":
            from_input.add(node)
        depends = [before for before in node.all_input_nodes if before in from_input]
        if not node.op.startswith("call") or not depends:
            continue
        from_input.add(node)
        layers[node] = len(labels)
        labels.append(_label(node, module))
        edges += [(layers[before], layers[node]) for before in depends if before in layers]
    return LayerGraph(tuple(labels), tuple(edges))


def _label(node: fx.Node, module: nn.Module) -> str:
    if node.op == "call_module":
        return type(module.get_submodule(str(node.target))).__name__
    name = getattr(node.target, "__name__", str(node.target))
    return name.removesuffix(".default").split(".")[0].strip("_")


def _shortened(graph: LayerGraph) -> LayerGraph:
    """Join each straight stretch into one box, so that a deep network stays readable; at most `MAX_BOXES` boxes."""
    count = len(graph.labels)
    into, out_of = [0] * count, [0] * count
    for a, b in graph.edges:
        out_of[a] += 1
        into[b] += 1
    follows = {b: a for a, b in graph.edges if out_of[a] == 1 and into[b] == 1}
    boxes: list[list[int]] = []
    box_of: dict[int, int] = {}
    for layer in range(count):
        before = follows.get(layer)
        if before is not None and len(boxes[box_of[before]]) < LAYERS_PER_BOX:
            box_of[layer] = box_of[before]
            boxes[box_of[layer]].append(layer)
        else:
            box_of[layer] = len(boxes)
            boxes.append([layer])
    labels = [" → ".join(graph.labels[layer] for layer in box) for box in boxes]
    edges = [(box_of[a], box_of[b]) for a, b in graph.edges]
    if len(labels) > MAX_BOXES:
        last = MAX_BOXES - 1
        labels = [*labels[:last], f"… {len(labels) - last} more"]
        edges = [(min(a, last), min(b, last)) for a, b in edges]
    return LayerGraph(tuple(labels), tuple(dict.fromkeys((a, b) for a, b in edges if a != b)))
