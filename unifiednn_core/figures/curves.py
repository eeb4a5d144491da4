"""Loss and accuracy of each sub-model, with those of the baselines neutral and dashed over them."""

from collections.abc import Sequence
from html import escape
from typing import Literal

from unifiednn_core.figures.arrays import pack, thin
from unifiednn_core.figures.layout import FAINT, Figure, axis_title, identity, layout
from unifiednn_core.figures.palette import sign
from unifiednn_core.figures.times import over_time
from unifiednn_core.views.comparison import Mode
from unifiednn_core.views.runs import RunView, Series, SubModelView

Quantity = Literal["loss", "accuracy"]
Axis = Literal["epochs", "seconds"]

HEIGHT_PX = 250
TITLE_LINE_ENTRIES = 3
MAX_MARKERS = 60
BASELINE_DASHES: dict[Mode, str] = {"concurrent": "6px,3px", "sequential": "2px,3px"}
MAX_OVERLAY_POINTS = 400


def curves(view: RunView, quantity: Quantity, baselines: Sequence[RunView] = (), over: Axis = "epochs") -> Figure:
    """Loss or accuracy: training as a thick line, test as a thin, faint one, training of baselines dashed in grey."""
    number_format = ".1%" if quantity == "accuracy" else ".4g"
    traces: list[Figure] = []
    for submodel in view.submodels:
        if over == "epochs":
            lost = [series for series in _lost_series(submodel, quantity) if series.x]
            traces += [_lost(submodel, series, number_format, place) for place, series in enumerate(lost)]
        for test, series in enumerate(_series(submodel, quantity)):
            placed = series if over == "epochs" else over_time(view, submodel, series)
            if placed.x:
                traces.append(_curve(submodel, placed, number_format, test=bool(test)))
    for baseline in baselines:
        traces += _overlay(baseline, quantity, over)
    title = f"{quantity.capitalize()} {'by epoch' if over == 'epochs' else 'over time'}"
    figure_layout = layout(title if baselines else quantity.capitalize(), "", HEIGHT_PX, view.run_id)
    unit = "epochs trained" if over == "epochs" else "seconds since the launch"
    figure_layout["xaxis"] |= {"title": axis_title(f"{unit} (thick: training, thin: test)"), "rangemode": "tozero"}
    figure_layout["yaxis"] |= {"tickformat": ".0%"} if quantity == "accuracy" else {"rangemode": "tozero"}
    figure_layout["showlegend"] = True
    if sum(bool(trace["showlegend"]) for trace in traces) > TITLE_LINE_ENTRIES:  # then below the title, not beside it
        figure_layout["margin"] |= {"t": 60}
        figure_layout["height"] += 26
    return {"data": traces, "layout": figure_layout}


def _series(submodel: SubModelView, quantity: Quantity) -> tuple[Series, Series]:
    if quantity == "loss":
        return submodel.loss, submodel.test_loss_curve
    return submodel.accuracy, submodel.test_accuracy_curve


def _curve(submodel: SubModelView, series: Series, number_format: str, *, test: bool) -> Figure:
    mark = sign(submodel.number)
    x, y = thin(series.x, series.y)
    return {
        "type": "scatter",
        "mode": "lines+markers" if test and len(x) <= MAX_MARKERS else "lines",
        "x": pack(x),
        "y": pack(y),
        "name": f"{mark.letter}  {escape(submodel.name)}{', test' if test else ''}",
        "uid": identity(submodel.name, test),
        "legendgroup": submodel.name,
        "showlegend": not test,
        "opacity": 0.6 if test else 1,
        "line": {"color": mark.colour, "dash": mark.dash, "width": 1 if test else 2},
        "marker": {"color": mark.colour, "size": 3.5},
        "hovertemplate": f"%{{y:{number_format}}}",
    }


def _lost_series(submodel: SubModelView, quantity: Quantity) -> tuple[Series, ...]:
    return submodel.lost_loss if quantity == "loss" else submodel.lost_accuracy


def _lost(submodel: SubModelView, series: Series, number_format: str, place: int) -> Figure:
    curve = _curve(submodel, series, number_format, test=False)
    return curve | {
        "name": f"{curve['name']}: lost, trained again",
        "uid": identity(submodel.name, "lost", place),
        "showlegend": False,
        "opacity": 0.45,
        "line": curve["line"] | {"width": 1},
    }


def _overlay(baseline: RunView, quantity: Quantity, over: Axis) -> list[Figure]:
    """Training curves of a baseline, under one entry of the legend; they lie over the hybrid's to show equality."""
    traces: list[Figure] = []
    for submodel in baseline.submodels:
        series = _series(submodel, quantity)[0]
        placed = series if over == "epochs" else over_time(baseline, submodel, series)
        if not placed.x:
            continue
        x, y = thin(placed.x, placed.y, MAX_OVERLAY_POINTS)
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "x": pack(x),
                "y": pack(y),
                "name": baseline.mode,
                "uid": identity(submodel.name, baseline.mode),
                "legendgroup": f"baseline {baseline.mode}",
                "showlegend": not traces,
                "line": {"color": FAINT, "dash": BASELINE_DASHES.get(baseline.mode, "dash"), "width": 1.2},
                "opacity": 0.75,
                "hoverinfo": "skip",  # its values would cover the chart, and they are the hybrid's own
            }
        )
    return traces
