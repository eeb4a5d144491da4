"""Moments that explain a change of memory, drawn so that hundreds stay legible."""

from collections.abc import Sequence
from dataclasses import replace

from unifiednn_core.base.units import duration_text
from unifiednn_core.views.figures.layout import CLEAR, FAINT, TEXT, Trace, as_label, scatter
from unifiednn_core.views.memory import Mark

MAX_OF_A_KIND = 120
"""Of a kind with more marks, neighbours are gathered."""
MAX_LINES = 24
"""A kind with more marks has signs above the chart and no lines through it."""
NEAR = 0.02
"""Signs of a kind that are nearer than this share of the time between all of them are gathered: they would overlap."""
MAX_TEXTS = 3
"""Most gathered marks that are told one by one."""
STRIP = (0.8, 1.0)
"""Part of the chart's height that holds the signs, in two rows."""
UPPER = frozenset({"load", "end", "pause"})
"""Kinds in the upper row; those that come at the same moments as others stand in the other one."""
SIGNS = {
    "load": ("triangle-down", 7),
    "switch": ("line-ns", 6),
    "pause": ("square", 6),
    "checkpoint": ("diamond-tall", 7),
    "separation": ("triangle-up", 7),
    "end": ("x", 6),
}
GLYPHS = {"load": "▼", "switch": "|", "pause": "■", "checkpoint": "◆", "separation": "▲", "end": "✖"}


def gather(marks: Sequence[Mark], limit: int = MAX_OF_A_KIND) -> list[Mark]:
    """Marks in order of time; neighbours of a kind that are near, or more than `limit`, are gathered into one mark."""
    moments: list[Mark] = []
    times_s = [mark.at_s for mark in marks]
    near_s = NEAR * (max(times_s, default=0.0) - min(times_s, default=0.0))
    for kind in SIGNS:
        own = sorted((mark for mark in marks if mark.kind == kind), key=lambda mark: mark.at_s)
        own = own if len(own) <= limit else _bins(own, limit)
        moments += own if kind == "switch" else _apart(own, near_s)
    return sorted(moments, key=lambda moment: moment.at_s)


def key(marks: Sequence[Mark]) -> str:
    """Legend of the signs of these marks, on one line."""
    there = {mark.kind for mark in marks}
    return " · ".join(f"{glyph} {kind}" for kind, glyph in GLYPHS.items() if kind in there)


def draw(marks: Sequence[Mark], offset_s: float = 0.0) -> tuple[list[Trace], list[Trace]]:
    """Traces of the strip above the chart, on the axis `y2`, and lines through the chart as shapes."""
    moments = [replace(moment, at_s=moment.at_s + offset_s) for moment in gather(marks)]
    own = {kind: [moment for moment in moments if moment.kind == kind] for kind in SIGNS}
    lined = [kind for kind in SIGNS if kind != "switch" and len(own[kind]) <= MAX_LINES]
    traces = [_signs(kind, there) for kind, there in own.items() if there]
    return traces, [_line(moment.at_s) for kind in lined for moment in own[kind]]


def _bins(own: Sequence[Mark], limit: int) -> list[Mark]:
    first_s, last_s = own[0].at_s, own[-1].at_s
    width_s = (last_s - first_s) / limit or 1.0
    bins: dict[int, list[Mark]] = {}
    for mark in own:
        bins.setdefault(min(limit - 1, int((mark.at_s - first_s) / width_s)), []).append(mark)
    return [near[0] if len(near) == 1 else _gathered(near) for near in bins.values()]


def _apart(own: Sequence[Mark], near_s: float) -> list[Mark]:
    groups: list[list[Mark]] = []
    for mark in own:
        if groups and mark.at_s - groups[-1][0].at_s <= near_s:
            groups[-1].append(mark)
        else:
            groups.append([mark])
    return [near[0] if len(near) == 1 else _gathered(near) for near in groups]


def _gathered(near: Sequence[Mark]) -> Mark:
    first, last, count = near[0], near[-1], sum(mark.count for mark in near)
    what = "switches" if first.kind == "switch" else f"{first.kind}s"
    text = f"{count} {what}, {duration_text(first.at_s)} to {duration_text(last.at_s)}"
    if count <= MAX_TEXTS:
        text = "; ".join(dict.fromkeys(mark.text for mark in near))
    return Mark((first.at_s + last.at_s) / 2, first.kind, None, text, count)


def _signs(kind: str, own: Sequence[Mark]) -> Trace:
    symbol, size = SIGNS[kind]
    colour, width = (FAINT, 1) if kind == "switch" else (TEXT, 0)
    row = 0.5 if kind in UPPER else -0.5
    return scatter([moment.at_s for moment in own], [row] * len(own), "markers") | {
        "yaxis": "y2",
        "name": kind,
        "showlegend": False,
        "cliponaxis": False,
        "marker": {"symbol": symbol, "size": size, "color": colour, "line": {"width": width, "color": FAINT}},
        "customdata": [as_label(moment.text) for moment in own],
        "hovertemplate": "%{customdata}<extra></extra>",
    }


def _line(at_s: float) -> Trace:
    return {
        "type": "line",
        "x0": at_s,
        "x1": at_s,
        "y0": 0,
        "y1": STRIP[0],
        "yref": "paper",
        "line": {"width": 1, "color": FAINT, "dash": "1px,2px"},
        "fillcolor": CLEAR,
    }
