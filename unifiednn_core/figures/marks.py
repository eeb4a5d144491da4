"""Moments that explain a change of memory, drawn so that hundreds of them stay legible."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape

from unifiednn_core.figures.arrays import pack
from unifiednn_core.figures.layout import CLEAR, FAINT, TEXT, Figure
from unifiednn_core.units import duration_text
from unifiednn_core.views.memory import Mark

MAX_OF_A_KIND = 120
"""More of one kind than so many are gathered."""
MAX_LINES = 24
"""More of one kind than so many get no line through the chart, only their sign above it."""
STRIP = (0.92, 1.0)
"""Part of the chart's height that the signs stand in."""
SIGNS = {
    "load": ("triangle-down", 7),
    "switch": ("line-ns", 6),
    "pause": ("square", 6),
    "checkpoint": ("diamond-tall", 7),
    "separation": ("triangle-up", 7),
    "end": ("x", 6),
}
GLYPHS = {"load": "▼", "switch": "|", "pause": "■", "checkpoint": "◆", "separation": "▲", "end": "✖"}
PLURALS = {"switch": "switches"}


@dataclass(frozen=True, slots=True)
class Moment:
    """One mark, or several of one kind that lie close together."""

    at_s: float
    kind: str
    text: str
    count: int = 1


def gather(marks: Sequence[Mark], limit: int = MAX_OF_A_KIND) -> list[Moment]:
    """Marks in order of time; of a kind with more than `limit`, neighbours are gathered into one. None is lost."""
    moments: list[Moment] = []
    for kind in SIGNS:
        own = sorted((mark for mark in marks if mark.kind == kind), key=lambda mark: mark.at_s)
        moments += [Moment(mark.at_s, kind, mark.text) for mark in own] if len(own) <= limit else _bins(own, limit)
    return sorted(moments, key=lambda moment: moment.at_s)


def key(marks: Sequence[Mark]) -> str:
    """What the signs of these marks mean, on one line."""
    there = {mark.kind for mark in marks}
    return " · ".join(f"{glyph} {kind}" for kind, glyph in GLYPHS.items() if kind in there)


def draw(marks: Sequence[Mark], offset_s: float = 0.0) -> tuple[list[Figure], list[Figure]]:
    """Traces of the strip above the chart, on the axis `y2`, and lines through the chart as shapes."""
    moments = [replace(moment, at_s=moment.at_s + offset_s) for moment in gather(marks)]
    traces, lines = [], []
    for kind in SIGNS:
        own = [moment for moment in moments if moment.kind == kind]
        if not own:
            continue
        traces.append(_signs(kind, own))
        if kind != "switch" and len(own) <= MAX_LINES:
            lines += [_line(moment.at_s) for moment in own]
    return traces, lines


def _bins(own: Sequence[Mark], limit: int) -> list[Moment]:
    first_s, last_s = own[0].at_s, own[-1].at_s
    width_s = (last_s - first_s) / limit or 1.0
    bins: dict[int, list[Mark]] = {}
    for mark in own:
        bins.setdefault(min(limit - 1, int((mark.at_s - first_s) / width_s)), []).append(mark)
    return [_gathered(near) for near in bins.values()]


def _gathered(near: Sequence[Mark]) -> Moment:
    first, last = near[0], near[-1]
    if len(near) == 1:
        return Moment(first.at_s, first.kind, first.text)
    what = PLURALS.get(first.kind, f"{first.kind}s")
    text = f"{len(near)} {what}, {duration_text(first.at_s)} to {duration_text(last.at_s)}"
    return Moment((first.at_s + last.at_s) / 2, first.kind, text, len(near))


def _signs(kind: str, own: Sequence[Moment]) -> Figure:
    symbol, size = SIGNS[kind]
    return {
        "type": "scatter",
        "mode": "markers",
        "x": pack([moment.at_s for moment in own]),
        "y": pack([0.0] * len(own)),
        "yaxis": "y2",
        "name": kind,
        "showlegend": False,
        "marker": {
            "symbol": symbol,
            "size": size,
            "color": FAINT if kind == "switch" else TEXT,
            "line": {"width": 1 if kind == "switch" else 0, "color": FAINT},
        },
        "customdata": [escape(moment.text) for moment in own],
        "hovertemplate": "%{customdata}<extra></extra>",
    }


def _line(at_s: float) -> Figure:
    return {"type": "line", "x0": at_s, "x1": at_s, "y0": 0, "y1": STRIP[0], "yref": "paper",
            "line": {"width": 1, "color": FAINT, "dash": "1px,2px"}, "fillcolor": CLEAR}  # fmt: skip
