"""Views as figures: plain `{data, layout}` dicts in plotly's terms, with the theme's colours as CSS variables.

The browser replaces each `var(--st-...)` by the colour of the current theme, so a figure is the same in light and dark.
"""

from html import escape
from typing import Any, Literal

from pages._ui.arrays import pack, thin
from pages._ui.palette import sign
from pages._ui.turns import Turn, merge
from unifiednn_core.units import MIB, duration_text
from unifiednn_core.views import RunView, Series, SubModelView

Figure = dict[str, Any]
Quantity = Literal["loss", "accuracy"]

TEXT, FAINT, GRID, SURFACE = (
    "var(--st-text-color)",
    "var(--st-gray-text-color)",
    "var(--st-border-color)",
    "var(--st-background-color)",
)
MIN_LANES = 3
CURVE_HEIGHT_PX, STRIP_HEIGHT_PX = 250, 182


def curves(view: RunView, quantity: Quantity) -> Figure:
    """Loss or accuracy by epochs trained: training as a thick line, test as a thin, faint one."""
    number_format = ".1%" if quantity == "accuracy" else ".4g"
    traces: list[Figure] = []
    for submodel in view.submodels:
        train, test = _series(submodel, quantity)
        traces += [_lost(submodel, series, number_format) for series in _lost_series(submodel, quantity) if series.x]
        if train.x:
            traces.append(_curve(submodel, train, number_format, test=False))
        if test.x:
            traces.append(_curve(submodel, test, number_format, test=True))
    layout = _layout(view, quantity.capitalize(), "", CURVE_HEIGHT_PX)
    layout["xaxis"] |= {"title": _axis_title("epochs trained (thick: training, thin: test)"), "rangemode": "tozero"}
    layout["yaxis"] |= {"tickformat": ".0%"} if quantity == "accuracy" else {"rangemode": "tozero"}
    layout["showlegend"] = True
    return {"data": traces, "layout": layout}


def memory(view: RunView) -> Figure:
    """Memory in use since the start of the run, in MiB, with its source in the title."""
    seconds, size_bytes = thin(view.memory.x, view.memory.y)
    trace = {
        "type": "scatter",
        "mode": "lines",
        "x": pack(seconds),
        "y": pack(size_bytes / MIB),
        "line": {"color": "var(--st-primary-color)", "width": 1.5},
        "fill": "tozeroy",
        "fillcolor": "rgba(110,130,170,0.16)",
        "hovertemplate": "%{y:,.0f} MiB at %{x:,.0f} s<extra></extra>",
        "name": "memory",
    }
    layout = _layout(view, "Memory", view.memory_source or "source not available", STRIP_HEIGHT_PX)
    layout["yaxis"] |= {"ticksuffix": " MiB", "rangemode": "tozero"}
    layout["xaxis"] |= {"title": _axis_title("seconds since the start"), "rangemode": "tozero"}
    return {"data": [trace] if view.memory.x else [], "layout": layout}


def schedule(view: RunView) -> Figure:
    """Who held the device and when: one lane for each sub-model, one bar for each turn."""
    turns = merge(view.schedule)
    lanes = [f"{sign(submodel.number).letter}  {escape(submodel.name)}" for submodel in view.submodels]
    traces = [
        _lane(submodel, lane, [turn for turn in turns if turn.submodel == submodel.name])
        for submodel, lane in zip(view.submodels, lanes, strict=True)
    ]
    layout = _layout(view, "Schedule", "who held the device", STRIP_HEIGHT_PX)
    spare = max(0, MIN_LANES - len(lanes)) / 2  # so that one lane alone does not fill the chart
    layout |= {"barmode": "overlay", "bargap": 0.35, "hovermode": "closest"}
    layout["xaxis"] |= {"title": _axis_title("seconds since the start"), "rangemode": "tozero", "showgrid": True}
    layout["yaxis"] |= {
        "categoryorder": "array",
        "categoryarray": lanes[::-1],
        "range": [-0.5 - spare, len(lanes) - 0.5 + spare],
        "showgrid": False,
        "fixedrange": True,
    }
    return {"data": traces, "layout": layout}


def _series(submodel: SubModelView, quantity: Quantity) -> tuple[Series, Series]:
    if quantity == "loss":
        return submodel.loss, submodel.test_loss_curve
    return submodel.accuracy, submodel.test_accuracy_curve


def _curve(submodel: SubModelView, series: Series, number_format: str, *, test: bool) -> Figure:
    mark = sign(submodel.number)
    x, y = thin(series.x, series.y)
    return {
        "type": "scatter",
        "mode": "lines+markers" if test and len(x) <= 60 else "lines",
        "x": pack(x),
        "y": pack(y),
        "name": f"{mark.letter}  {escape(submodel.name)}{', test' if test else ''}",
        "legendgroup": submodel.name,
        "showlegend": not test,
        "opacity": 0.6 if test else 1,
        "line": {"color": mark.colour, "dash": mark.dash, "width": 1 if test else 2},
        "marker": {"color": mark.colour, "size": 3.5},
        "hovertemplate": f"%{{y:{number_format}}}",
    }


def _lost_series(submodel: SubModelView, quantity: Quantity) -> tuple[Series, ...]:
    return submodel.lost_loss if quantity == "loss" else submodel.lost_accuracy


def _lost(submodel: SubModelView, series: Series, number_format: str) -> Figure:
    curve = _curve(submodel, series, number_format, test=False)
    return curve | {
        "name": f"{curve['name']}: lost, trained again",
        "showlegend": False,
        "opacity": 0.45,
        "line": curve["line"] | {"width": 1},
    }


def _lane(submodel: SubModelView, lane: str, turns: list[Turn]) -> Figure:
    return {
        "type": "bar",
        "orientation": "h",
        "name": escape(submodel.name),
        "y": [lane] * len(turns),
        "base": pack([turn.start_s for turn in turns]),
        "x": pack([turn.end_s - turn.start_s for turn in turns]),
        "marker": {"color": sign(submodel.number).colour, "line": {"width": 0}},
        "customdata": [_turn_text(turn) for turn in turns],
        "hovertemplate": "%{customdata}<extra></extra>",
    }


def _turn_text(turn: Turn) -> str:
    how_often = "" if turn.turns == 1 else f" in {turn.turns:,} turns"
    stretch = f"{duration_text(turn.start_s)} to {duration_text(turn.end_s)}"
    return f"<b>{escape(turn.submodel)}</b>: {turn.steps:,} steps{how_often}<br>{stretch}<br>{escape(turn.reason)}"


def _axis_title(text: str) -> Figure:
    return {"text": text, "standoff": 6, "font": {"size": 11, "color": FAINT}}


def _layout(view: RunView, title: str, subtitle: str, height_px: int) -> Figure:
    axis = {
        "gridcolor": GRID,
        "linecolor": GRID,
        "zeroline": False,
        "tickfont": {"size": 11, "color": FAINT},
        "automargin": True,
    }
    text = f"<b>{title}</b>  <span style='font-size:11px'>{escape(subtitle)}</span>"
    return {
        "height": height_px,
        "margin": {"l": 8, "r": 12, "t": 34, "b": 8},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "var(--st-font)", "color": TEXT, "size": 12},
        "title": {"text": text, "x": 0, "xref": "container", "y": 1, "yref": "container", "yanchor": "top",
                  "pad": {"t": 8, "l": 2}, "font": {"size": 13, "color": TEXT}},
        "xaxis": axis | {"showgrid": False, "ticks": "outside", "ticklen": 4, "tickcolor": GRID,
                         "spikecolor": FAINT, "spikethickness": 1, "spikedash": "solid", "hoverformat": ",.2f"},
        "yaxis": dict(axis),
        "showlegend": False,
        "legend": {"orientation": "h", "x": 0.95, "xanchor": "right", "y": 1.02, "yanchor": "bottom",
                   "font": {"size": 11, "color": TEXT}, "bgcolor": "rgba(0,0,0,0)", "itemwidth": 30},
        "hovermode": "x unified",
        "hoverlabel": {"bgcolor": SURFACE, "bordercolor": GRID, "font": {"size": 12, "color": TEXT}, "align": "left"},
        "dragmode": "zoom",
        "modebar": {"orientation": "v", "bgcolor": "rgba(0,0,0,0)", "color": FAINT, "activecolor": TEXT},
        "uirevision": view.run_id,
    }  # fmt: skip
