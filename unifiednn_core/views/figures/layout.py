"""Layout of all charts: the theme's colours as CSS variables, fonts and axes.

The browser replaces each `var(--st-...)` by the colour of the current theme, so one figure serves light and dark.
"""

import zlib
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from unifiednn_core.base.visible import visible
from unifiednn_core.views.figures.arrays import Floats, single

Trace = dict[str, Any]
"""A trace, a layout or a part of one, in plotly's terms."""
Figure = dict[str, Any]
"""`data` and `layout` in plotly's terms, as JSON: `plotly.graph_objects` would take half of a tick."""

TEXT, FAINT, GRID = "var(--st-text-color)", "var(--st-gray-text-color)", "var(--st-border-color)"
SURFACE, ACCENT = "var(--st-background-color)", "var(--st-primary-color)"
NAME_CHARACTERS = 18
CLEAR = "rgba(0,0,0,0)"
NEUTRAL = "#808896"
"""A grey that is visible in both themes; no sub-model has it."""
HATCHED_AXIS = {"overlaying": "y", "range": [0, 1], "visible": False, "fixedrange": True}
"""The axis `y3`, which `hatched` needs."""


def figure(traces: Sequence[Mapping[str, Any]], layout: Mapping[str, Any]) -> Figure:
    """Traces and layout as a figure; only the tests validate it."""
    return {"data": list(traces), "layout": dict(layout)}


def scatter(x: Sequence[float] | Floats, y: Sequence[float] | Floats, mode: str = "lines", **more: Any) -> Trace:
    """A scatter trace of these values."""
    return {"type": "scatter", "mode": mode, "x": single(x), "y": single(y), **more}


def layout(height_px: int, revision: str) -> Trace:
    """Layout with a quiet grid, without title and legend, which stand beside the chart; `revision` keeps the zoom."""
    axis = {
        "gridcolor": GRID,
        "linecolor": GRID,
        "zeroline": False,
        "automargin": True,
        "tickfont": {"size": 11, "color": FAINT},
    }
    return {
        "template": {},  # else plotly adds its own, 7 KiB of defaults
        "height": height_px,
        "margin": {"l": 8, "r": 12, "t": 10, "b": 8},
        "paper_bgcolor": CLEAR,
        "plot_bgcolor": CLEAR,
        "font": {"family": "var(--st-font)", "color": TEXT, "size": 12},
        "xaxis": axis
        | {
            "title": {"standoff": 6, "font": {"size": 11, "color": FAINT}},
            "rangemode": "tozero",
            "showgrid": False,
            "ticks": "outside",
            "ticklen": 4,
            "tickcolor": GRID,
            "spikecolor": FAINT,
            "spikethickness": 1,
            "spikedash": "solid",
            "hoverformat": ",.2f",
        },
        "yaxis": dict(axis),
        "showlegend": False,
        "hovermode": "x unified",
        "dragmode": "zoom",
        "uirevision": revision,
        "hoverlabel": {"bgcolor": SURFACE, "bordercolor": GRID, "font": {"size": 12, "color": TEXT}, "align": "left"},
        "modebar": {"orientation": "v", "bgcolor": CLEAR, "color": FAINT, "activecolor": TEXT},
    }


def as_label(text: str) -> str:
    """Text as plotly shows it: literal and visible, without elements and without the values that `%{...}` stands for.

    Plotly knows few entities by name; quotes are none of them.
    """
    return _escaped(visible(text))


def short(name: str) -> str:
    """A name as plotly shows it; one of more than `NAME_CHARACTERS` ends with an ellipsis."""
    shown = visible(name)
    cut = f"{shown[: NAME_CHARACTERS - 1]}\N{HORIZONTAL ELLIPSIS}"
    return _escaped(shown if len(shown) <= NAME_CHARACTERS else cut)


def identity(*parts: object) -> str:
    """Identity of a trace or of a chip. Safe in a CSS selector."""
    return f"u{zlib.crc32(repr(parts).encode()):08x}"


def _escaped(text: str) -> str:
    return escape(text, quote=False).replace("%", "&#37;")


def tint(colour: str, alpha: float) -> str:
    """Colour `#RRGGBB` with an opacity, in plotly's syntax."""
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return f"rgba({red},{green},{blue},{alpha:g})"


def grey(alpha: float) -> str:
    """The neutral grey with an opacity."""
    return tint(NEUTRAL, alpha)


def hatched(spans_s: Sequence[tuple[float, float]], text: str) -> list[Trace]:
    """One trace of hatched rectangles on the axis `y3`, of which nothing is known; `text` is for the pointer."""
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
