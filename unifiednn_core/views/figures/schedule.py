"""Turns on the device: one lane for each sub-model, one bar for each turn."""

from collections.abc import Sequence

import numpy as np

from unifiednn_core.base.units import duration_text
from unifiednn_core.views.figures.arrays import Floats, single
from unifiednn_core.views.figures.chips import part_key
from unifiednn_core.views.figures.layout import (
    FAINT,
    HATCHED_AXIS,
    NAME_CHARACTERS,
    Figure,
    Trace,
    as_label,
    figure,
    grey,
    hatched,
    layout,
    short,
)
from unifiednn_core.views.figures.palette import sign
from unifiednn_core.views.runs import SHOWN_TURNS, RunView, Slice, SubModelView

MAX_BARS = 600
PALE, FAINTEST, BESIDE = 0.3, 0.1, 0.6
"""Opacity of a process that starts, of the smallest share of a bin, and of a turn beside the policy's choice."""
MIN_LANES = 3
LANE_PX, FRAME_PX, MIN_HEIGHT_PX = 22, 68, 158
CHARACTER_PX, LEAST_MARGIN_PX = 6.4, 62
GAP_LANES = 0.7
"""Room between two arms."""
SUBTITLES = {"hybrid": "turns on the device", "concurrent": "each in its own process", "sequential": "one by one"}
_BACK_TO_BACK_S = 1e-3
_HATCHED = {
    "color": grey(0.35),
    "line": {"width": 1, "color": grey(0.8)},
    "pattern": {"shape": "/", "fgcolor": grey(0.9), "size": 6, "solidity": 0.25},
}


def schedule(view: RunView, height_px: int = MIN_HEIGHT_PX, until_s: float | None = None) -> Figure:
    """The turns of one run in seconds since its launch, up to `until_s`."""
    turns, offset_s = gather(view.schedule), view.launch_offset_s
    lanes = [_label(submodel) for submodel in view.submodels]
    traces = [_lane(submodel, turns, lane, offset_s) for submodel, lane in zip(view.submodels, lanes, strict=True)]
    height_px = max(height_px, FRAME_PX + LANE_PX * len(lanes))
    figure_layout = _frame(height_px, view.run_id, margin_px(view))
    figure_layout["meta"] = {"note": _subtitle(view.mode, turns)}
    if until_s is not None:
        figure_layout["xaxis"]["range"] = [0.0, until_s]
    if len(view.schedule) >= SHOWN_TURNS:
        older_s = min(turn.start_s for turn in turns) + offset_s
        traces += hatched([(0.0, older_s)], "older turns are not shown")
        figure_layout["yaxis3"] = dict(HATCHED_AXIS)
    spare = max(0, MIN_LANES - len(lanes)) / 2  # so that a single lane does not fill the chart
    lanes_range = [-0.5 - spare, len(lanes) - 0.5 + spare]
    figure_layout["yaxis"] |= {
        "categoryorder": "array",
        "categoryarray": lanes[::-1],
        "range": lanes_range,
        "tickvals": lanes,
        "ticktext": lanes,
    }
    return figure(traces, figure_layout)


def margin_px(view: RunView) -> int:
    """Room left of the plots of a run over time, so that they stand below each other: the longest label fits."""
    longest = max((len(part.name) for part in view.submodels), default=0)
    return max(LEAST_MARGIN_PX, int(30 + CHARACTER_PX * min(longest, NAME_CHARACTERS)))


def arms_schedule(views: Sequence[RunView], until_s: float | None = None) -> Figure:
    """The turns of several arms below each other, counted from the launch of each, up to `until_s`.

    Baselines are hatched.
    """
    traces: list[Trace] = []
    ticks: dict[float, str] = {}
    notes: list[Trace] = []
    at = 0.0
    for view in views:
        turns = gather(view.schedule)
        notes.append(_arm_name(view, turns, at))
        at += 1
        for submodel in view.submodels:
            ticks[at] = _label(submodel)
            lane = _lane(submodel, turns, at, view.launch_offset_s) | {"width": 0.68}
            traces.append(lane if view.mode == "hybrid" else lane | {"marker": lane["marker"] | _HATCHED})
            at += 1
        at += GAP_LANES
    revision = views[0].run_id if views else ""
    figure_layout = _frame(int(FRAME_PX + LANE_PX * at), revision, max(map(margin_px, views), default=LEAST_MARGIN_PX))
    lanes_range = [at - GAP_LANES - 0.4, -0.6]
    figure_layout["yaxis"] |= {"tickvals": list(ticks), "ticktext": list(ticks.values()), "range": lanes_range}
    figure_layout["annotations"] = notes
    if until_s is not None:
        figure_layout["xaxis"]["range"] = [0.0, until_s]
    return figure(traces, figure_layout)


def gather(slices: Sequence[Slice], limit: int = MAX_BARS) -> list[Slice]:
    """Turns as at most `limit` bars: one each, or one for each bin of time if there are more.

    The bar of a bin has the share of time in which the sub-model held the device, so no lane looks fuller than it was.
    """
    lanes: dict[str, list[Slice]] = {}
    for turn in slices:
        lanes.setdefault(turn.submodel, []).append(turn)
    joined = [turn for lane in lanes.values() for turn in _joined(lane)]
    if len(joined) <= max(limit, len(lanes)):
        return joined
    from_s, until_s = min(turn.start_s for turn in joined), max(turn.end_s for turn in joined)
    edges_s = np.linspace(from_s, until_s, max(1, limit // len(lanes)) + 1)
    return [turn for lane in lanes.values() for turn in _binned(lane, edges_s)]


def _joined(lane: Sequence[Slice]) -> list[Slice]:
    """Join turns without a pause between them; the start of a process stays apart from its steps."""
    joined: list[Slice] = []
    for turn in lane:
        last = joined[-1] if joined else None
        alike = last is not None and (bool(last.steps), last.lane) == (bool(turn.steps), turn.lane)
        if last and alike and turn.start_s - last.end_s <= _BACK_TO_BACK_S:
            turn = turn._replace(start_s=last.start_s, steps=last.steps + turn.steps, turns=last.turns + turn.turns)
            joined.pop()
        joined.append(turn)
    return joined


def _binned(lane: Sequence[Slice], edges_s: Floats) -> list[Slice]:
    """One bar for each bin in which the sub-model held the device; steps of a turn are spread evenly over it."""
    starts_s, ends_s = np.array([turn.start_s for turn in lane]), np.array([turn.end_s for turn in lane])
    moments_s = np.stack([starts_s, ends_s], axis=1).ravel()

    def until_each_edge(values: Sequence[float] | Floats) -> Floats:
        total = np.concatenate([[0.0], np.cumsum(values)])
        reached: Floats = np.interp(edges_s, moments_s, np.stack([total[:-1], total[1:]], axis=1).ravel())
        return reached

    held_s = np.diff(until_each_edge(ends_s - starts_s))
    steps = np.diff(np.round(until_each_edge([turn.steps for turn in lane])))
    first = np.searchsorted(ends_s, edges_s[:-1], side="right")
    last = np.searchsorted(starts_s, edges_s[1:], side="left")
    width_s = edges_s[1] - edges_s[0]
    bars = []
    for at in np.flatnonzero(held_s > 0):
        newest, share = lane[last[at] - 1], float(min(1.0, held_s[at] / width_s))
        span = {"start_s": float(edges_s[at]), "end_s": float(edges_s[at + 1]), "share": share}
        bars.append(newest._replace(**span, steps=int(steps[at]), turns=int(max(1, last[at] - first[at]))))
    return bars


def _subtitle(mode: str, turns: Sequence[Slice]) -> str:
    if any(turn.share < 1 for turn in turns):
        return f"{SUBTITLES[mode]}, opacity is the share of time"
    if any(turn.lane > 1 for turn in turns):
        return f"{SUBTITLES[mode]}; paler: runs beside the policy's choice"
    return SUBTITLES[mode]


def _arm_name(view: RunView, turns: Sequence[Slice], at: float) -> Trace:
    return {
        "text": f"<b>{view.mode}</b>  {_subtitle(view.mode, turns)}",
        "x": 0,
        "xref": "paper",
        "xanchor": "left",
        "y": at,
        "yref": "y",
        "yanchor": "middle",
        "showarrow": False,
        "font": {"size": 11, "color": FAINT},
    }


def _lane(submodel: SubModelView, turns: Sequence[Slice], lane: str | float, offset_s: float) -> Trace:
    own = [turn for turn in turns if turn.submodel == submodel.name]
    opacity = [_opacity(turn) for turn in own]
    return {
        "type": "bar",
        "orientation": "h",
        "name": _label(submodel),
        "meta": {"of": part_key(submodel.name)},
        "y": [lane] * len(own),
        "base": single([turn.start_s + offset_s for turn in own]),
        "x": single([turn.end_s - turn.start_s for turn in own]),
        "marker": {"color": sign(submodel.number).colour, "line": {"width": 0}, "opacity": single(opacity)},
        "customdata": [_turn_text(turn, offset_s) for turn in own],
        "hovertemplate": "%{customdata}<extra></extra>",
    }


def _opacity(turn: Slice) -> float:
    if turn.steps == 0 and turn.share == 1:
        return PALE
    return max(FAINTEST, turn.share * (1.0 if turn.lane == 1 else BESIDE))


def _turn_text(turn: Slice, offset_s: float) -> str:
    steps = f"{turn.steps:,} steps"
    if turn.share < 1:
        share, bin_text = f"{turn.share:.0%}", duration_text(turn.end_s - turn.start_s)
        steps = f"turns: {turn.turns:,}, {share} of {bin_text}" + f", {steps}"
    elif turn.turns > 1:
        steps = f"{turn.steps:,} steps in {turn.turns:,} turns"
    until = "now" if turn.running else duration_text(turn.end_s + offset_s)
    stretch = f"{duration_text(turn.start_s + offset_s)} to {until}"
    return f"<b>{as_label(turn.submodel)}</b>: {steps}<br>{stretch}<br>{as_label(turn.reason)}"


def _label(submodel: SubModelView) -> str:
    return f"{sign(submodel.number).letter}  {short(submodel.name)}"


def _frame(height_px: int, revision: str, left_px: int) -> Trace:
    figure_layout = layout(height_px, revision)
    figure_layout |= {"barmode": "overlay", "bargap": 0.35, "hovermode": "closest"}
    figure_layout["margin"] |= {"l": left_px}
    figure_layout["xaxis"] |= {"showgrid": True}
    figure_layout["yaxis"] |= {"showgrid": False, "fixedrange": True, "automargin": False}
    return figure_layout
