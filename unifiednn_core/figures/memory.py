"""Memory over time: what it was used for as stacked bands, the total as a line, and marks of what happened."""

import itertools
from collections.abc import Sequence
from html import escape

import numpy as np

from unifiednn_core.figures import marks
from unifiednn_core.figures.arrays import Floats, Places, floats, pack, places
from unifiednn_core.figures.curves import BASELINE_DASHES
from unifiednn_core.figures.layout import FAINT, TEXT, Figure, axis_title, grey, identity, layout, unavailable
from unifiednn_core.figures.palette import sign
from unifiednn_core.figures.strata import Band, bands, stretches
from unifiednn_core.figures.times import launch_offset_s
from unifiednn_core.units import MIB, NOT_AVAILABLE
from unifiednn_core.views.runs import RunView

HEIGHT_PX = 320
MAX_INSTANTS, MAX_VALUES = 600, 12_000
"""A chart has at most so many instants, and so many values over all of its bands."""
MAX_GAPS = 100
MAX_STRETCHES = 12
"""Beyond so many gaps only the longest are shown as such: each costs one more set of bands."""
SHADES_TEXT = "<br>of each sub-model, strong to faint: weights, gradients, optimizer, transient"
NO_MEMORY = "Memory is not available."


def memory(view: RunView, arms: Sequence[RunView] = ()) -> Figure:
    """Memory of a run by use, as far as it is known, and the totals of `arms` beside it, dashed.

    With `arms`, seconds count from the launch of each arm, so that they can be laid over each other.
    """
    offset_s = launch_offset_s(view) if arms else 0.0
    source = view.strata.source or view.memory_source or f"source {NOT_AVAILABLE}"
    figure_layout = layout("Memory", source, HEIGHT_PX, view.run_id)
    x_title = f"seconds since the {'launch' if arms else 'start'}{SHADES_TEXT if view.strata.at_s else ''}"
    figure_layout["yaxis"] |= {"ticksuffix": " MiB", "rangemode": "tozero", "domain": [0, marks.STRIP[0]]}
    figure_layout["xaxis"] |= {"title": axis_title(x_title), "rangemode": "tozero"}
    others = [trace for arm in arms for trace in _arm_total(arm)]
    if view.strata.at_s:
        own = _strata(view, offset_s)
    elif view.memory.x:
        own = [_total(floats(view.memory.x) + offset_s, floats(view.memory.y), filled=True)]
    else:
        own = []
    if not own and not others:
        return unavailable({"data": [], "layout": figure_layout}, NO_MEMORY)
    signs, lines = marks.draw(view.marks, offset_s)
    figure_layout["shapes"] = lines
    figure_layout["yaxis2"] = {"domain": list(marks.STRIP), "range": [-1, 1], "visible": False, "fixedrange": True}
    figure_layout["showlegend"] = bool(view.strata.at_s or others)
    figure_layout["legend"] |= {"x": 0, "xanchor": "left", "y": -0.3, "yanchor": "top", "traceorder": "normal"}
    figure_layout["hoverlabel"] |= {"font": {"size": 11, "color": TEXT}}
    return {"data": own + others + signs, "layout": figure_layout}


def _strata(view: RunView, offset_s: float) -> list[Figure]:
    strata, drawn = view.strata, bands(view.strata, view.submodels)
    total = floats(strata.total_bytes)
    kept = _instants(total, len(drawn))
    at_s = floats(strata.at_s)[kept] + offset_s
    known = ~np.isnan(total[kept])
    for band in drawn:
        known |= ~np.isnan(band.size_bytes[kept])
    letters = {s.name: f"{sign(s.number).letter}  {escape(s.name)}" for s in view.submodels}
    held = _held(drawn)
    traces: list[Figure] = []
    named: set[str] = set()
    for number, stretch in enumerate(_longest(stretches(known.tolist()), at_s)):
        for band in drawn:
            sizes = band.size_bytes[kept][stretch]
            if not np.nansum(sizes) > 0:
                continue
            trace = _band(band, at_s[stretch], sizes, f"stretch {number}")
            if band.group in held and band.kind == "weights":
                trace |= _all_of(letters.get(band.group, escape(band.group)), held[band.group][kept][stretch])
            if band.group in named:
                pass
            elif band.group == band.name:  # its own pattern is its entry in the legend
                trace["showlegend"] = True
            else:
                traces.append(_legend_entry(band, letters.get(band.group, escape(band.group))))
            named.add(band.group)
            traces.append(trace)
    if not np.isnan(total).all():
        traces.append(_total(at_s, total[kept], filled=False))
    return traces


def _instants(total: Floats, layers: int) -> Places:
    """Places of the instants that are shown: few enough for the browser, every peak of the total and gap among them."""
    kept = places(total, max(60, min(MAX_INSTANTS, MAX_VALUES // max(1, layers))))
    missing = np.isnan(total)
    gaps = np.flatnonzero(missing & ~np.concatenate([[False], missing[:-1]]))
    return np.union1d(kept, gaps[:MAX_GAPS])


def _longest(parts: list[slice], at_s: Floats) -> list[slice]:
    """Stretches, with those joined that the shortest gaps lie between, until they are few enough."""
    while len(parts) > MAX_STRETCHES:
        gaps = [at_s[after.start] - at_s[before.stop - 1] for before, after in itertools.pairwise(parts)]
        shortest = int(np.argmin(gaps))
        parts = [*parts[:shortest], slice(parts[shortest].start, parts[shortest + 1].stop), *parts[shortest + 2 :]]
    return parts


def _band(band: Band, at_s: Floats, sizes: Floats, stack: str) -> Figure:
    trace: Figure = {
        "type": "scatter",
        "mode": "lines",
        "x": pack(at_s),
        "y": pack(np.nan_to_num(sizes) / MIB),
        "name": escape(band.name),
        "uid": identity(band.name, stack),
        "legendgroup": band.group,
        "showlegend": False,
        "stackgroup": stack,
        "line": {"width": 0.4, "color": band.line, "shape": "linear"},
        "fillcolor": band.fill,
        "hoveron": "points",
    }
    # One line of the hover label for each group: more would cover the chart.
    trace |= {"hovertemplate": "%{y:,.1f} MiB"} if band.group == band.name else {"hoverinfo": "skip"}
    if band.pattern:
        trace["fillpattern"] = {"shape": band.pattern, "fgcolor": grey(0.8), "bgcolor": band.fill, "size": 7,
                                "solidity": 0.18}  # fmt: skip
    return trace


def _held(drawn: Sequence[Band]) -> dict[str, Floats]:
    """All that each sub-model holds, over time."""
    held: dict[str, Floats] = {}
    for band in drawn:
        if band.group != band.name:
            held[band.group] = held.get(band.group, np.zeros(len(band.size_bytes))) + np.nan_to_num(band.size_bytes)
    return held


def _all_of(name: str, size_bytes: Floats) -> Figure:
    """What the hover label says at the band of a sub-model's weights: its name, and all that it holds."""
    template = f"{name} : %{{customdata:,.1f}} MiB<extra></extra>"
    return {"customdata": pack(size_bytes / MIB), "hovertemplate": template, "hoverinfo": "all"}


def _legend_entry(band: Band, name: str) -> Figure:
    """An entry that shows and hides all of a group; its darkest shade stands for the others."""
    return {"type": "scatter", "mode": "markers", "x": [None], "y": [None], "name": name, "uid": identity(band.group),
            "legendgroup": band.group, "showlegend": True, "hoverinfo": "skip",
            "marker": {"symbol": "square", "size": 11, "color": band.fill,
                       "line": {"width": 1, "color": band.line}}}  # fmt: skip


def _total(at_s: Floats, size_bytes: Floats, *, filled: bool) -> Figure:
    kept = _instants(size_bytes, 1)
    trace: Figure = {
        "type": "scatter",
        "mode": "lines",
        "x": pack(at_s[kept]),
        "y": pack(size_bytes[kept] / MIB),
        "line": {"color": TEXT, "width": 1.3},
        "connectgaps": False,
        "hovertemplate": "%{y:,.0f} MiB",
        "name": "total",
        "uid": identity("total"),
        "showlegend": True,
    }
    return trace | {"fill": "tozeroy", "fillcolor": grey(0.18)} if filled else trace


def _arm_total(arm: RunView) -> list[Figure]:
    """Total of another arm as a dashed grey line; nothing where it has none."""
    strata = arm.strata
    at_s = floats(strata.at_s) if strata.at_s else floats(arm.memory.x)
    size_bytes = floats(strata.total_bytes) if strata.at_s else floats(arm.memory.y)
    if not len(at_s) or np.isnan(size_bytes).all():
        return []
    line = {"color": FAINT, "width": 1.6, "dash": BASELINE_DASHES.get(arm.mode, "dash")}
    total = _total(at_s + launch_offset_s(arm), size_bytes, filled=False)
    return [total | {"name": arm.mode, "uid": identity(arm.mode), "line": line}]
