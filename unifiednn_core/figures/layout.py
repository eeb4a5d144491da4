"""What all charts have in common: the theme's colours as CSS variables, fonts, axes and legend.

Whoever draws a figure replaces each `var(--st-...)` by the colour of the current theme, so a figure is the same in
light and dark.
"""

import zlib
from html import escape
from typing import Any

Figure = dict[str, Any]

TEXT, FAINT, GRID, SURFACE, ACCENT = (
    "var(--st-text-color)",
    "var(--st-gray-text-color)",
    "var(--st-border-color)",
    "var(--st-background-color)",
    "var(--st-primary-color)",
)
CLEAR = "rgba(0,0,0,0)"
NEUTRAL_RGB = "128,136,150"
"""A grey that can be told from both themes' surfaces; it stands for no sub-model."""


def layout(title: str, subtitle: str, height_px: int, revision: str) -> Figure:
    """Layout with a title at the left, a quiet grid and room for a legend; the zoom is kept per `revision`."""
    axis = {
        "gridcolor": GRID,
        "linecolor": GRID,
        "zeroline": False,
        "tickfont": {"size": 11, "color": FAINT},
        "automargin": True,
    }
    text = f"<b>{escape(title)}</b>  <span style='font-size:11px'>{escape(subtitle)}</span>"
    return {
        "height": height_px,
        "margin": {"l": 8, "r": 12, "t": 34, "b": 8},
        "paper_bgcolor": CLEAR,
        "plot_bgcolor": CLEAR,
        "font": {"family": "var(--st-font)", "color": TEXT, "size": 12},
        "title": {"text": text, "x": 0, "xref": "container", "y": 1, "yref": "container", "yanchor": "top",
                  "pad": {"t": 8, "l": 2}, "font": {"size": 13, "color": TEXT}},
        "xaxis": axis | {"showgrid": False, "ticks": "outside", "ticklen": 4, "tickcolor": GRID,
                         "spikecolor": FAINT, "spikethickness": 1, "spikedash": "solid", "hoverformat": ",.2f"},
        "yaxis": dict(axis),
        "showlegend": False,
        "legend": {"orientation": "h", "x": 0.95, "xanchor": "right", "y": 1.02, "yanchor": "bottom",
                   "font": {"size": 11, "color": TEXT}, "bgcolor": CLEAR, "itemwidth": 30},
        "hovermode": "x unified",
        "hoverlabel": {"bgcolor": SURFACE, "bordercolor": GRID, "font": {"size": 12, "color": TEXT}, "align": "left"},
        "dragmode": "zoom",
        "modebar": {"orientation": "v", "bgcolor": CLEAR, "color": FAINT, "activecolor": TEXT},
        "uirevision": revision,
    }  # fmt: skip


def axis_title(text: str) -> Figure:
    """Title of an axis, small and quiet."""
    return {"text": text, "standoff": 6, "font": {"size": 11, "color": FAINT}}


def identity(*parts: object) -> str:
    """Identity of a trace, by which what a person hid stays hidden when others come; plotly makes selectors of it."""
    return f"u{zlib.crc32(repr(parts).encode()):08x}"


def unavailable(figure: Figure, text: str) -> Figure:
    """A figure that says in its middle why it shows nothing, in place of its axes."""
    note = {"text": escape(text), "x": 0.5, "y": 0.5, "xref": "paper", "yref": "paper", "showarrow": False,
            "font": {"size": 12, "color": FAINT}}  # fmt: skip
    hidden = {name: axis | {"visible": False} for name, axis in figure["layout"].items() if "axis" in name}
    return {"data": [], "layout": figure["layout"] | hidden | {"annotations": [note]}}


def tint(colour: str, alpha: float) -> str:
    """Colour `#RRGGBB` with an opacity, as plotly takes it."""
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return f"rgba({red},{green},{blue},{alpha:g})"


def grey(alpha: float) -> str:
    """The neutral grey with an opacity."""
    return f"rgba({NEUTRAL_RGB},{alpha:g})"
