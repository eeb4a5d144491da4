"""Stretches of time of which nothing is known, hatched over the whole height of a chart."""

from collections.abc import Sequence

from unifiednn_core.views.figures.layout import CLEAR, Trace, as_label, grey, identity, scatter

AXIS = {"overlaying": "y", "range": [0, 1], "visible": False, "fixedrange": True}
"""The axis `y3`, which `hatched` needs."""


def hatched(spans_s: Sequence[tuple[float, float]], text: str) -> list[Trace]:
    """One trace of hatched rectangles on the axis `y3`, with a text for the pointer; none without spans."""
    if not spans_s:
        return []
    gap = float("nan")
    x = [edge for start_s, end_s in spans_s for edge in (start_s, start_s, end_s, end_s, gap)]
    pattern = {"shape": "/", "fgcolor": grey(0.55), "bgcolor": CLEAR, "size": 9, "solidity": 0.12}
    return [
        scatter(x, [0.0, 1.0, 1.0, 0.0, gap] * len(spans_s))
        | {
            "yaxis": "y3",
            "fill": "toself",
            "fillcolor": grey(0.08),
            "fillpattern": pattern,
            "line": {"width": 0},
            "name": as_label(text),
            "text": as_label(text),
            "hoveron": "fills",
            "hoverinfo": "text",
            "uid": identity("hole", text),
            "meta": {"kind": "hole"},
        }
    ]
