"""Loss and accuracy of each sub-model, with those of the baselines neutral and dashed over them."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from unifiednn_core.spec.lifecycle import ENDED, State
from unifiednn_core.spec.run import Mode
from unifiednn_core.views.figures.arrays import thin
from unifiednn_core.views.figures.layout import FAINT, Figure, Trace, as_label, figure, identity, layout, scatter
from unifiednn_core.views.figures.palette import sign
from unifiednn_core.views.runs import SHOWN_TURNS, RunView, Series, SubModelView

Quantity = Literal["loss", "accuracy"]
Axis = Literal["epochs", "seconds"]

HEIGHT_PX = 250
TITLE_LINE_ENTRIES = 3
MAX_MARKERS = 60
BASELINE_DASHES: dict[Mode, str] = {
    "concurrent": "6px,3px", "sequential": "2px,3px",
    "concurrent-resident": "10px,3px", "sequential-resident": "4px,3px,1px,3px",
}  # fmt: skip
MAX_OVERLAY_POINTS = 400
_EDGE_STEPS = 1e-6


def curves(view: RunView, quantity: Quantity, baselines: Sequence[RunView] = (), over: Axis = "epochs") -> Figure:
    """Loss or accuracy: training as a thick line, test as a thin, faint one, training of baselines dashed in grey."""
    number_format = ".1%" if quantity == "accuracy" else ".4g"
    traces: list[Trace] = []
    for submodel in view.submodels:
        train, test, lost = _series(submodel, quantity)
        if over == "seconds":
            train, test, lost = over_time(view, submodel, train), over_time(view, submodel, test), ()
        drawn = [series for series in lost if series.x]
        traces += [_lost(submodel, series, number_format, place) for place, series in enumerate(drawn)]
        traces += [_curve(submodel, train, number_format)] if train.x else []
        traces += [_curve(submodel, test, number_format, test=True)] if test.x else []
    for baseline in baselines:
        traces += _overlay(baseline, quantity, over)
    title = f"{quantity.capitalize()} {'by epoch' if over == 'epochs' else 'over time'}"
    unit = "epochs trained" if over == "epochs" else "seconds since the launch"
    x_title = f"{unit} (thick: training, thin: test)"
    figure_layout = layout(title if baselines else quantity.capitalize(), "", x_title, HEIGHT_PX, view.run_id)
    figure_layout["yaxis"] |= {"tickformat": ".0%"} if quantity == "accuracy" else {"rangemode": "tozero"}
    figure_layout["showlegend"] = True
    if sum(bool(trace["showlegend"]) for trace in traces) > TITLE_LINE_ENTRIES:  # below the title
        figure_layout["margin"] |= {"t": 60}
        figure_layout["height"] += 26
    return figure(traces, figure_layout)


def over_time(view: RunView, submodel: SubModelView, series: Series) -> Series:
    """The same values over seconds since the launch, by the turns on the device.

    A curve begins with the first known turn that made a step; the start of a process makes none.
    """
    turns = [turn for turn in view.schedule if turn.submodel == submodel.name and turn.steps > 0]
    if not turns or not series.x or not submodel.epochs:
        return Series()
    after = np.cumsum([turn.steps for turn in turns], dtype=float)
    if view.state in ENDED or len(view.schedule) >= SHOWN_TURNS:
        after += max(0.0, submodel.steps_done - after[-1])
    before = np.concatenate([[after[0] - turns[0].steps], after[:-1]]) + _EDGE_STEPS
    steps = np.stack([before, after], axis=1).ravel()
    seconds = np.array([moment for turn in turns for moment in (turn.start_s, turn.end_s)])
    epochs = submodel.epochs_done if submodel.state is State.COMPLETED else submodel.epochs  # some stop early
    wanted = np.asarray(series.x) * (submodel.steps_total / epochs)
    known = (wanted >= steps[0]) & (wanted <= steps[-1] + 0.5)
    at_s = np.interp(wanted[known], steps, seconds) + view.launch_offset_s
    return Series(tuple(at_s.tolist()), tuple(np.asarray(series.y)[known].tolist()))


def _series(submodel: SubModelView, quantity: Quantity) -> tuple[Series, Series, tuple[Series, ...]]:
    """Curves of training, test and void steps."""
    if quantity == "loss":
        return submodel.loss, submodel.test_loss_curve, submodel.lost_loss
    return submodel.accuracy, submodel.test_accuracy_curve, submodel.lost_accuracy


def _curve(submodel: SubModelView, series: Series, number_format: str, *, test: bool = False) -> Trace:
    mark = sign(submodel.number)
    x, y = thin(series.x, series.y)
    return scatter(x, y, "lines+markers" if test and len(x) <= MAX_MARKERS else "lines") | {
        "name": f"{mark.letter}  {as_label(submodel.name)}{', test' if test else ''}",
        "uid": identity(submodel.name, test), "legendgroup": submodel.name, "showlegend": not test,
        "line": {"color": mark.colour, "dash": mark.dash, "width": 1 if test else 2}, "opacity": 0.6 if test else 1,
        "marker": {"color": mark.colour, "size": 3.5}, "hovertemplate": f"%{{y:{number_format}}}",
    }  # fmt: skip


def _lost(submodel: SubModelView, series: Series, number_format: str, place: int) -> Trace:
    curve = _curve(submodel, series, number_format)
    return curve | {
        "name": f"{curve['name']}: lost, trained again", "uid": identity(submodel.name, "lost", place),
        "showlegend": False, "opacity": 0.45, "line": curve["line"] | {"width": 1},
    }  # fmt: skip


def _overlay(baseline: RunView, quantity: Quantity, over: Axis) -> list[Trace]:
    """Training curves of a baseline, under one entry of the legend; they lie over the hybrid's to show equality."""
    line = {"color": FAINT, "dash": BASELINE_DASHES.get(baseline.mode, "dash"), "width": 1.2}
    traces: list[Trace] = []
    for submodel in baseline.submodels:
        series = _series(submodel, quantity)[0]
        placed = series if over == "epochs" else over_time(baseline, submodel, series)
        if placed.x:
            traces.append(scatter(*thin(placed.x, placed.y, MAX_OVERLAY_POINTS)) | {
                "name": baseline.mode, "uid": identity(submodel.name, baseline.mode),
                "legendgroup": f"baseline {baseline.mode}", "showlegend": not traces, "line": line, "opacity": 0.75,
                "hoverinfo": "skip",  # its values would cover the chart, and they are the hybrid's own
            })  # fmt: skip
    return traces
