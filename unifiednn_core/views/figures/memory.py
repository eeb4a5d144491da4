"""Memory over time by use, as stacked bands with marks of events; that of several runs; and the load of a GPU."""

import itertools
from collections import Counter
from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from unifiednn_core.base.units import MIB
from unifiednn_core.views.figures import marks
from unifiednn_core.views.figures.arrays import Floats, Places, floats, places, single
from unifiednn_core.views.figures.chips import BASELINE_DASHES, baseline_key, part_key
from unifiednn_core.views.figures.layout import (
    ACCENT,
    FAINT,
    HATCHED_AXIS,
    TEXT,
    Figure,
    Trace,
    as_label,
    figure,
    grey,
    hatched,
    identity,
    scatter,
    tint,
)
from unifiednn_core.views.figures.layout import layout as new_layout
from unifiednn_core.views.figures.palette import sign
from unifiednn_core.views.figures.schedule import margin_px
from unifiednn_core.views.memory import MemoryBreakdown, MemoryLayer
from unifiednn_core.views.runs import RunView, SubModelView

HEIGHT_PX, TOTALS_HEIGHT_PX = 260, 300
MAX_INSTANTS, MAX_VALUES = 600, 12_000
"""Most instants of a chart, and most values over all of its bands."""
MAX_GAPS = 100
MAX_STRETCHES = 12
"""With more gaps only the longest are shown: each costs one more set of bands."""
SHADES = {"weights": 0.95, "gradients": 0.7, "optimizer": 0.48, "transient": 0.28}
"""Opacity of the memory of a sub-model, from dark to light in the order of the stack."""
GREYS = {
    "context": (0.3, ""),
    "slack": (0.16, "/"),
    "data": (0.5, "."),
    "others": (0.4, "x"),
    "unexplained": (0.07, "\\"),
}
"""Opacity and pattern of memory that belongs to no sub-model."""
OTHERS = "other sub-models"
MAX_SUBMODELS = 8
"""With more sub-models the largest keep their own bands; the others share one of each kind."""


class Band(NamedTuple):
    """One band of the stack. NaN if it was not measured, or is nothing."""

    kind: str
    name: str
    group: str
    """Bands of a group are shown and hidden together."""
    size_bytes: Floats
    fill: str
    line: str
    pattern: str = ""


def memory(
    view: RunView, arms: Sequence[RunView] = (), height_px: int = HEIGHT_PX, until_s: float | None = None
) -> Figure:
    """Memory of a run by use, as far as it is known, and the totals of `arms` dashed over it.

    Seconds count from the launch of each, up to `until_s`. `meta` of the layout holds the source and the key of the
    bands that belong to no sub-model.
    """
    by_use, offset_s = bool(view.breakdown.at_s), view.launch_offset_s
    layout = new_layout(height_px, view.run_id)
    layout["yaxis"] |= {"ticksuffix": " MiB", "rangemode": "tozero", "domain": [0, marks.STRIP[0]], "automargin": False}
    layout["margin"] |= {"l": margin_px(view)}
    others = [trace for arm in arms for trace in _arm_total(arm)]
    own = _breakdown(view, offset_s) if by_use else []
    if not by_use and view.memory.x:
        own = [_total(floats(view.memory.x) + offset_s, floats(view.memory.y), filled=True)]
        own += hatched(_holes(floats(view.memory.x) + offset_s, floats(view.memory.y)), "no sample")
    if not own and not others:
        return _unavailable(layout, "Memory is not available.")
    signs, layout["shapes"] = marks.draw(view.marks, offset_s)
    layout["yaxis2"] = {"domain": list(marks.STRIP), "range": [-1, 1], "visible": False, "fixedrange": True}
    layout["yaxis3"] = HATCHED_AXIS | {"domain": layout["yaxis"]["domain"]}
    if until_s is not None:
        layout["xaxis"]["range"] = [0.0, until_s]
    layout["hoverlabel"] |= {"font": {"size": 11, "color": TEXT}}
    source = view.breakdown.source or view.memory_source or "source not available"
    layout["meta"] = {"note": as_label(source), "key": _key(view)}
    return figure(own + others + signs, layout)


def _key(view: RunView) -> list[dict[str, str]]:
    """The bands that belong to no sub-model, as a legend of names, fills and patterns."""
    drawn = bands(view.breakdown, view.submodels) if view.breakdown.at_s else []
    alone = {band.group: band for band in drawn if band.kind not in SHADES or band.group == OTHERS}
    return [{"name": name, "fill": band.fill, "pattern": band.pattern} for name, band in alone.items()]


def _holes(at_s: Floats, size_bytes: Floats) -> list[tuple[float, float]]:
    """Stretches without a sample between two that have one, at most `MAX_GAPS`."""
    known = np.flatnonzero(~np.isnan(size_bytes))
    apart = np.flatnonzero(np.diff(known) > 1)[:MAX_GAPS]
    return [(float(at_s[known[place]]), float(at_s[known[place + 1]])) for place in apart]


def device(view: RunView, height_px: int = HEIGHT_PX, until_s: float | None = None) -> Figure:
    """Utilisation and power of the GPU over seconds since the launch."""
    layout = new_layout(height_px, view.run_id)
    layout["meta"] = {"note": "utilisation, and power in grey"}
    layout["margin"] |= {"l": margin_px(view)}
    if not view.utilisation.x and not view.power_w.x:
        return _unavailable(layout, "Utilisation and power are not available.")
    traces = []
    for series, name, label, looks in (
        (view.utilisation, "utilisation", "%{y:.0%}", {"color": ACCENT, "width": 1.4, "dash": "solid"}),
        (view.power_w, "power", "%{y:,.0f} W", {"color": FAINT, "width": 1.4, "dash": "2px,2px"}),
    ):
        kept = places(floats(series.y), MAX_INSTANTS)
        x, y = floats(series.x)[kept] + view.launch_offset_s, floats(series.y)[kept]
        axis = "y" if name == "utilisation" else "y2"
        traces.append(scatter(x, y, yaxis=axis, name=name, line=looks, hovertemplate=label))
    layout["yaxis"] |= {"tickformat": ".0%", "range": [0, 1.02], "nticks": 4, "automargin": False}
    layout["yaxis2"] = layout["yaxis"] | {
        "overlaying": "y",
        "side": "right",
        "tickformat": ",.0f",
        "ticksuffix": " W",
        "range": None,
        "rangemode": "tozero",
        "showgrid": False,
        "automargin": True,
    }
    if until_s is not None:
        layout["xaxis"]["range"] = [0.0, until_s]
    return figure(traces, layout)


def _unavailable(layout: Trace, text: str) -> Figure:
    """A figure without data, with the reason in its middle instead of axes."""
    note = {
        "text": as_label(text),
        "x": 0.5,
        "y": 0.5,
        "xref": "paper",
        "yref": "paper",
        "showarrow": False,
        "font": {"size": 12, "color": FAINT},
    }
    hidden = {name: axis | {"visible": False} for name, axis in layout.items() if "axis" in name}
    return figure([], layout | hidden | {"annotations": [note]})


def bands(breakdown: MemoryBreakdown, submodels: Sequence[SubModelView]) -> list[Band]:
    """Bands from the bottom of the chart to its top."""
    signs = {submodel.name: sign(submodel.number) for submodel in submodels}
    own = _largest(breakdown.layers)
    drawn: list[Band] = []
    for kind, layers in itertools.groupby(breakdown.layers, key=attrgetter("kind")):
        others: list[Floats] = []
        for layer in layers:
            values = floats(layer.size_bytes)
            if layer.submodel is None:
                alpha, pattern = GREYS[kind]
                name = "data sets" if kind == "data" else kind
                drawn.append(Band(kind, name, name, values, grey(alpha), grey(0.7), pattern))
            elif layer.submodel in own:
                mark = signs.get(layer.submodel, sign(0))
                fill, line = tint(mark.colour, SHADES[kind]), tint(mark.colour, 0.9)
                drawn.append(Band(kind, f"{mark.letter} {kind}", layer.submodel, values, fill, line))
            else:
                others.append(values)
        if others:
            values = np.where(np.isnan(others).all(axis=0), np.nan, np.nansum(others, axis=0))
            fill = grey(SHADES[kind])
            drawn.append(Band(kind, f"others' {kind}", OTHERS, values, fill, grey(0.9), "-"))
    return drawn


def stretches(known: npt.ArrayLike) -> list[slice]:
    """Stretches without a gap."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], np.asarray(known, dtype=bool), [False]]).astype(int)))
    return [slice(int(start), int(end)) for start, end in edges.reshape(-1, 2)]


def _breakdown(view: RunView, offset_s: float) -> list[Trace]:
    drawn, total = bands(view.breakdown, view.submodels), floats(view.breakdown.total_bytes)
    kept = _instants(total, len(drawn))
    at_s = floats(view.breakdown.at_s)[kept] + offset_s
    sampled = ~np.isnan(np.stack([total, *(band.size_bytes for band in drawn)])[:, kept]).all(axis=0)
    names = {s.name: f"{sign(s.number).letter}  {as_label(s.name)}" for s in view.submodels}
    held: dict[str, Floats] = {}  # by each sub-model, all kinds together
    for band in drawn:
        if band.group != band.name:
            held[band.group] = held.get(band.group, 0.0) + np.nan_to_num(band.size_bytes)
    traces: list[Trace] = []
    for number, stretch in enumerate(_longest(stretches(sampled), at_s)):
        for band in drawn:
            sizes = band.size_bytes[kept][stretch]
            if not np.nansum(sizes) > 0:
                continue
            trace, name = _band(band, at_s[stretch], sizes, f"stretch {number}"), as_label(band.group)
            name = names.get(band.group, name)
            if band.group in held and band.kind == "weights":
                template = f"{name} : %{{customdata:,.1f}} MiB<extra></extra>"
                of_all_kinds = single(held[band.group][kept][stretch] / MIB)
                trace |= {"customdata": of_all_kinds, "hovertemplate": template, "hoverinfo": "all"}
            traces.append(trace)
    if not np.isnan(total).all():
        context = sum(
            (np.nan_to_num(band.size_bytes) for band in drawn if band.kind == "context"), np.zeros(len(total))
        )
        traces.append(_total(at_s, total[kept], context[kept], filled=False))
    return traces + hatched(_holes(at_s, total[kept]), "no sample")


def _instants(total: Floats, layers: int) -> Places:
    """Indices of the instants to show: few enough for a browser, with every peak of the total and every gap."""
    kept = places(total, max(60, min(MAX_INSTANTS, MAX_VALUES // max(1, layers))))
    missing = np.isnan(total)
    gaps = np.flatnonzero(missing & ~np.concatenate([[False], missing[:-1]]))
    return np.union1d(kept, gaps[:MAX_GAPS])


def _longest(parts: list[slice], at_s: Floats) -> list[slice]:
    """Stretches, joined over the shortest gaps until they are few enough."""
    while len(parts) > MAX_STRETCHES:
        gaps = [at_s[after.start] - at_s[before.stop - 1] for before, after in itertools.pairwise(parts)]
        shortest = int(np.argmin(gaps))
        parts = [*parts[:shortest], slice(parts[shortest].start, parts[shortest + 1].stop), *parts[shortest + 2 :]]
    return parts


def _band(band: Band, at_s: Floats, sizes: Floats, stack: str) -> Trace:
    trace = scatter(at_s, np.nan_to_num(sizes) / MIB) | {
        "name": as_label(band.name),
        "uid": identity(band.name, stack),
        "meta": {"of": part_key(band.group) if band.kind in SHADES else "", "kind": "band", "use": band.kind},
        "stackgroup": stack,
        "line": {"width": 0.4, "color": band.line, "shape": "linear"},
        "fillcolor": band.fill,
        "hoveron": "points",
    }
    # One line of the hover label for each group: more would cover the chart.
    trace |= {"hovertemplate": "%{y:,.1f} MiB"} if band.group == band.name else {"hoverinfo": "skip"}
    if band.pattern:
        trace["fillpattern"] = {
            "shape": band.pattern,
            "fgcolor": grey(0.8),
            "bgcolor": band.fill,
            "size": 7,
            "solidity": 0.18,
        }
    return trace


def _total(at_s: Floats, size_bytes: Floats, context_bytes: Floats | None = None, *, filled: bool) -> Trace:
    """The total as a line; `meta` holds the context in it, so that the browser can show it without."""
    kept = _instants(size_bytes, 1)
    more = {} if context_bytes is None else {"context": single(context_bytes[kept] / MIB)}
    trace = scatter(at_s[kept], size_bytes[kept] / MIB) | {
        "line": {"color": TEXT, "width": 1.3},
        "connectgaps": False,
        "hovertemplate": "%{y:,.0f} MiB",
        "name": "total",
        "uid": identity("total"),
        "meta": {"kind": "total", **more},
    }
    return trace | {"fill": "tozeroy", "fillcolor": grey(0.18)} if filled else trace


def _arm_total(arm: RunView) -> list[Trace]:
    """Total of another arm as a dashed grey line; nothing if it has none."""
    known, whole = arm.breakdown, arm.memory
    at_s, size_bytes = map(floats, (known.at_s, known.total_bytes) if known.at_s else (whole.x, whole.y))
    if np.isnan(size_bytes).all():
        return []
    line = {"color": FAINT, "width": 1.6, "dash": BASELINE_DASHES.get(arm.mode, "dash")}
    total = _total(at_s + arm.launch_offset_s, size_bytes, filled=False)
    meta = {"of": baseline_key(arm.mode), "kind": "arm"}
    return [total | {"name": arm.mode, "uid": identity(arm.mode), "line": line, "meta": meta}]


def _largest(layers: Sequence[MemoryLayer]) -> set[str]:
    """Sub-models with their own bands: all, or of many those with the highest peaks."""
    peaks: Counter[str] = Counter()
    for layer in layers:
        if layer.submodel is not None:
            peaks[layer.submodel] += int(max(filter(None, layer.size_bytes), default=0))
    return set(peaks) if len(peaks) <= MAX_SUBMODELS else {name for name, _ in peaks.most_common(MAX_SUBMODELS - 1)}


def totals(lines: Sequence[tuple[str, str, int, RunView]]) -> Figure:
    """Total memory since the launch of each: label, name of the chip, number of its colour, and the run."""
    traces = []
    for label, chip, number, view in lines:
        known = view.breakdown
        at_s, size_bytes = map(
            floats, (known.at_s, known.total_bytes) if known.at_s else (view.memory.x, view.memory.y)
        )
        if not len(at_s):
            continue
        kept, mark = places(size_bytes), sign(number)
        traces.append(
            scatter(at_s[kept] + view.launch_offset_s, size_bytes[kept] / MIB)
            | {
                "name": as_label(label),
                "uid": identity("total", label),
                "hovertemplate": "%{y:,.0f} MiB",
                "line": {"color": mark.colour, "dash": mark.dash, "width": 1.6},
                "connectgaps": False,
                "meta": {"of": part_key(chip), "kind": "arm"},
            }
        )
    drawn = new_layout(TOTALS_HEIGHT_PX, ",".join(label for label, *_ in lines))
    drawn["yaxis"] |= {"ticksuffix": " MiB", "rangemode": "tozero"}
    return figure(traces, drawn)
