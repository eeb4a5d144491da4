"""The graph of the hybrid model as DOT text, from the layers and edges that the worker stored. Pure."""

import json
from collections.abc import Collection, Mapping
from typing import Any

from unifiednn_core.base.visible import visible

HEAD = (
    "digraph hybrid {",
    '  rankdir=LR; bgcolor="transparent"; compound=true;',
    '  node [shape=box, style="rounded", fontname="sans-serif", fontsize=10, height=0.3];',
    '  input [label="global input", shape=ellipse]; output [label="global output", shape=ellipse];',
)


def graph_dot(stored: str, names: Collection[str] | None = None) -> str:
    """One global input and output, between them one cluster for each sub-model, or only for those of `names`.

    `stored` is `HybridRow.graph`; empty before the networks are merged, and so is the text then.
    """
    if not stored:
        return ""
    shown = [graph for graph in json.loads(stored) if names is None or graph["name"] in names]
    lines = [line for place, graph in enumerate(shown) for line in _cluster(place, graph)]
    return "\n".join((*HEAD, *lines, "}"))


def _cluster(place: int, graph: Mapping[str, Any]) -> list[str]:
    nodes, edges = [f"m{place}_{index}" for index in range(len(graph["labels"]))], graph["edges"]
    fed, feeding = {b for _, b in edges}, {a for a, _ in edges}
    return [
        f'  subgraph cluster_{place} {{ label="{_quoted(graph["name"])}"; fontname="sans-serif"; fontsize=11;',
        *(f'    {node} [label="{_quoted(label)}"];' for node, label in zip(nodes, graph["labels"], strict=True)),
        *(f"    {nodes[a]} -> {nodes[b]};" for a, b in edges),
        "  }",
        *(f"  input -> {node};" for i, node in enumerate(nodes) if i not in fed),
        *(f"  {node} -> output;" for i, node in enumerate(nodes) if i not in feeding),
    ]


def _quoted(text: str) -> str:
    return visible(text).replace("\\", "\\\\").replace('"', '\\"')
