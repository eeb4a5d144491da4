"""Who held the device and when: one lane for each sub-model, one bar for each turn."""

from collections.abc import Sequence
from html import escape

from unifiednn_core.figures.arrays import pack
from unifiednn_core.figures.layout import FAINT, Figure, axis_title, grey, layout
from unifiednn_core.figures.palette import sign
from unifiednn_core.figures.times import launch_offset_s
from unifiednn_core.figures.turns import Turn, merge
from unifiednn_core.units import duration_text
from unifiednn_core.views.runs import RunView, SubModelView

MIN_LANES = 3
LANE_PX, FRAME_PX, MIN_HEIGHT_PX = 22, 92, 182
GAP_LANES = 0.7
"""Room between two arms."""
SUBTITLES = {"hybrid": "who held the device", "concurrent": "each in its own process", "sequential": "one by one"}


def schedule(view: RunView, height_px: int = MIN_HEIGHT_PX) -> Figure:
    """The turns of one run."""
    turns = merge(view.schedule)
    lanes = [f"{sign(submodel.number).letter}  {escape(submodel.name)}" for submodel in view.submodels]
    traces = [_lane(submodel, turns, [lane], 0.0) for submodel, lane in zip(view.submodels, lanes, strict=True)]
    height_px = max(height_px, FRAME_PX + LANE_PX * len(lanes))
    figure_layout = _frame("Schedule", SUBTITLES[view.mode], height_px, view.run_id, "seconds since the start")
    spare = max(0, MIN_LANES - len(lanes)) / 2  # so that one lane alone does not fill the chart
    figure_layout["yaxis"] |= {
        "categoryorder": "array",
        "categoryarray": lanes[::-1],
        "range": [-0.5 - spare, len(lanes) - 0.5 + spare],
    }
    return {"data": traces, "layout": figure_layout}


def arms_schedule(views: Sequence[RunView]) -> Figure:
    """The turns of several arms below each other, all counted from the launch of the arm; baselines are hatched."""
    traces: list[Figure] = []
    ticks: dict[float, str] = {}
    notes: list[Figure] = []
    at = 0.0
    for view in views:
        turns = merge(view.schedule)
        notes.append(_arm_name(view, at))
        at += 1
        for submodel in view.submodels:
            ticks[at] = f"{sign(submodel.number).letter}  {escape(submodel.name)}"
            lane = _lane(submodel, turns, [at], launch_offset_s(view)) | {"width": 0.68}
            traces.append(lane if view.mode == "hybrid" else lane | {"marker": _HATCHED})
            at += 1
        at += GAP_LANES
    revision = views[0].run_id if views else ""
    height_px = int(FRAME_PX + LANE_PX * at)
    figure_layout = _frame("Schedule", "of each arm", height_px, revision, "seconds since the launch")
    figure_layout["yaxis"] |= {
        "tickvals": list(ticks),
        "ticktext": list(ticks.values()),
        "range": [at - GAP_LANES - 0.4, -0.6],
    }
    figure_layout["annotations"] = notes
    return {"data": traces, "layout": figure_layout}


_HATCHED = {
    "color": grey(0.35),
    "line": {"width": 1, "color": grey(0.8)},
    "pattern": {"shape": "/", "fgcolor": grey(0.9), "size": 6, "solidity": 0.25},
}


def _arm_name(view: RunView, at: float) -> Figure:
    text = f"<b>{view.mode}</b>  {SUBTITLES[view.mode]}"
    return {"text": text, "x": 0, "xref": "paper", "xanchor": "left", "y": at, "yref": "y", "yanchor": "middle",
            "showarrow": False, "font": {"size": 11, "color": FAINT}}  # fmt: skip


def _lane(submodel: SubModelView, turns: Sequence[Turn], lane: Sequence[str | float], offset_s: float) -> Figure:
    own = [turn for turn in turns if turn.submodel == submodel.name]
    return {
        "type": "bar",
        "orientation": "h",
        "name": escape(submodel.name),
        "y": [*lane] * len(own),
        "base": pack([turn.start_s + offset_s for turn in own]),
        "x": pack([turn.end_s - turn.start_s for turn in own]),
        "marker": {"color": sign(submodel.number).colour, "line": {"width": 0}},
        "customdata": [_turn_text(turn, offset_s) for turn in own],
        "hovertemplate": "%{customdata}<extra></extra>",
    }


def _turn_text(turn: Turn, offset_s: float) -> str:
    how_often = "" if turn.turns == 1 else f" in {turn.turns:,} turns"
    stretch = f"{duration_text(turn.start_s + offset_s)} to {duration_text(turn.end_s + offset_s)}"
    return f"<b>{escape(turn.submodel)}</b>: {turn.steps:,} steps{how_often}<br>{stretch}<br>{escape(turn.reason)}"


def _frame(title: str, subtitle: str, height_px: int, revision: str, x_title: str) -> Figure:
    figure_layout = layout(title, subtitle, height_px, revision)
    figure_layout |= {"barmode": "overlay", "bargap": 0.35, "hovermode": "closest"}
    figure_layout["xaxis"] |= {"title": axis_title(x_title), "rangemode": "tozero", "showgrid": True}
    figure_layout["yaxis"] |= {"showgrid": False, "fixedrange": True}
    return figure_layout
