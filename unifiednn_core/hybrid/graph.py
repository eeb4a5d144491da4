"""The directed graph of the hybrid model (paper, figure 2) as DOT text."""

from collections.abc import Iterable
from dataclasses import dataclass

from torch import fx, nn

from unifiednn_core.hybrid.unifier import HybridModel

# Straight stretches of a network are drawn as one box of at most this many layers.
LAYERS_PER_BOX = 4
MAX_BOXES = 60


@dataclass(frozen=True, slots=True)
class LayerGraph:
    """Layers of one network and the connections {u_i, u_j} between them, by index."""

    labels: tuple[str, ...]
    edges: tuple[tuple[int, int], ...]


def to_dot(hybrid: HybridModel) -> str:
    """One global input and output, between them one cluster for each sub-model."""
    lines = [
        "digraph hybrid {",
        '  rankdir=LR; bgcolor="transparent"; compound=true;',
        '  node [shape=box, style="rounded", fontname="sans-serif", fontsize=10, height=0.3];',
        '  input [label="global input", shape=ellipse]; output [label="global output", shape=ellipse];',
    ]
    for position, name in enumerate(hybrid.names):
        graph = _shortened(layer_graph(hybrid.part(name).module[0]))
        node = [f"m{position}_{index}" for index in range(len(graph.labels))]
        lines.append(f'  subgraph cluster_{position} {{ label="{name}"; fontname="sans-serif"; fontsize=11;')
        lines += [f'    {node[i]} [label="{_quoted(label)}"];' for i, label in enumerate(graph.labels)]
        lines += [f"    {node[a]} -> {node[b]};" for a, b in graph.edges]
        lines.append("  }")
        fed, feeding = {b for _, b in graph.edges}, {a for a, _ in graph.edges}
        lines += [f"  input -> {node[i]};" for i in range(len(node)) if i not in fed]
        lines += [f"  {node[i]} -> output;" for i in range(len(node)) if i not in feeding]
    lines.append("}")
    return "\n".join(lines)


def layer_graph(module: nn.Module) -> LayerGraph:
    """Layers of a module as torch.fx sees them; where it cannot trace, its leaf modules in order of registration."""
    if isinstance(module, fx.GraphModule):
        return _from_fx(module.graph, module)
    try:
        return _from_fx(fx.Tracer().trace(module), module)
    except Exception:  # whatever tracing somebody's forward raises, the drawing falls back to a plain list
        leaves = [type(child).__name__ for child in module.modules() if not list(child.children())]
        return LayerGraph(tuple(leaves), tuple((i, i + 1) for i in range(len(leaves) - 1)))


def _from_fx(graph: fx.Graph, module: nn.Module) -> LayerGraph:
    """Compute nodes become layers; what only reads parameters or makes constants is passed over."""
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
    """Draw each straight stretch as one box, so that a deep network stays readable; cut off beyond `MAX_BOXES`."""
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
    edges = _distinct((box_of[a], box_of[b]) for a, b in graph.edges if box_of[a] != box_of[b])
    if len(labels) > MAX_BOXES:
        hidden = len(labels) - MAX_BOXES + 1
        labels = [*labels[: MAX_BOXES - 1], f"… {hidden} more"]
        last = MAX_BOXES - 1
        edges = _distinct((min(a, last), min(b, last)) for a, b in edges if min(a, last) != min(b, last))
    return LayerGraph(tuple(labels), edges)


def _distinct(edges: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    return tuple(dict.fromkeys(edges))


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
