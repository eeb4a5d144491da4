"""Loss, accuracy and learning rate of each sub-model, with those of the baselines neutral and dashed over them.

Each trace carries in `meta` what the browser needs to draw it over steps, seconds or the clock, smoothed or faded:
`of`, the key of its chip; `kind`; `steps`, those of one epoch; `s`, seconds since the launch for each point.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from unifiednn_core.spec.lifecycle import State
from unifiednn_core.views.figures.arrays import single, thin
from unifiednn_core.views.figures.chips import BASELINE_DASHES, baseline_key, part_key
from unifiednn_core.views.figures.layout import (
    FAINT,
    TEXT,
    Figure,
    Trace,
    as_label,
    figure,
    identity,
    layout,
    scatter,
    short,
)
from unifiednn_core.views.figures.palette import sign
from unifiednn_core.views.figures.timeline import Timeline, steps_per_epoch, timelines
from unifiednn_core.views.runs import RunView, Series, SubModelView

Quantity = Literal["loss", "accuracy", "rate"]
Kind = Literal["train", "test", "lost", "failed", "baseline"]
FORMATS: dict[Quantity, str] = {"loss": ".4g", "accuracy": ".1%", "rate": ".3g"}
HEIGHT_PX = 250
MAX_MARKERS = 60
CHART_POINTS, FEWEST_POINTS, MOST_POINTS, MAX_OVERLAY_POINTS = 5000, 150, 800, 400
"""Points of all training curves of a chart; fewest and most of one; most of one of a baseline."""
CAUSE_CHARACTERS = 90


def curves(view: RunView, quantity: Quantity, baselines: Sequence[RunView] = ()) -> Figure:
    """One quantity over epochs: training as a thick line, test as a thin, faint one, training of baselines dashed."""
    moments, traces = timelines(view), list[Trace]()
    limit = max(FEWEST_POINTS, min(MOST_POINTS, CHART_POINTS // max(1, len(view.submodels))))
    for part in view.submodels:
        train, test, lost = _series(part, quantity)
        when = moments[part.name]
        traces += [_curve(part, one, quantity, when, limit, "lost", at) for at, one in enumerate(lost) if one.x]
        traces += [_curve(part, train, quantity, when, limit, "train")] if train.x else []
        traces += [_curve(part, test, quantity, when, limit, "test")] if test.x else []
        if quantity == "loss" and part.state is State.FAILED:
            traces.append(_failure(part, when, _first_loss(view)))
    for baseline in baselines if quantity != "rate" else ():
        traces += _overlay(baseline, quantity)
    figure_layout = layout(HEIGHT_PX, view.run_id)
    ticks = {"accuracy": {"tickformat": ".0%"}, "loss": {"rangemode": "tozero"}, "rate": {"exponentformat": "power"}}
    figure_layout["yaxis"] |= ticks[quantity]
    return figure(traces, figure_layout)


def has_rates(view: RunView) -> bool:
    """Whether the learning rate of a sub-model changes: a chart of constants would say nothing."""
    return any(len(set(part.learning_rates.y)) > 1 for part in view.submodels)


def _series(part: SubModelView, quantity: Quantity) -> tuple[Series, Series, tuple[Series, ...]]:
    """Curves of training, test and void steps."""
    match quantity:
        case "loss":
            return part.loss, part.test_loss_curve, part.lost_loss
        case "accuracy":
            return part.accuracy, part.test_accuracy_curve, part.lost_accuracy
        case "rate":
            return part.learning_rates, Series(), ()


def _curve(
    part: SubModelView, series: Series, quantity: Quantity, when: Timeline, limit: int, kind: Kind, place: int = 0
) -> Trace:
    mark, x, y = sign(part.number), *thin(series.x, series.y, limit)
    more = {"test": ", test", "lost": ": lost, trained again"}.get(kind, "")
    width, opacity = {"test": (1, 0.6), "lost": (1, 0.45)}.get(kind, (2, 1))
    line = {"color": mark.colour, "dash": mark.dash, "width": width}
    if quantity == "rate":  # the rate of an epoch holds from its start
        x, y, line["shape"] = np.concatenate([[0.0], x]), np.concatenate([y[:1], y]), "vh"
    seconds = {} if kind == "lost" else {"s": single(when.at(x))}  # void steps have no turns
    return scatter(x, y, "lines+markers" if kind == "test" and len(x) <= MAX_MARKERS else "lines") | {
        "name": f"{mark.letter}  {short(part.name)}{more}",
        "uid": identity(part.name, quantity, kind, place),
        "line": line,
        "opacity": opacity,
        "marker": {"color": mark.colour, "size": 3.5},
        "hovertemplate": f"%{{y:{FORMATS[quantity]}}}",
        "meta": {"of": part_key(part.name), "kind": kind, "steps": steps_per_epoch(part), **seconds},
    }


def _failure(part: SubModelView, when: Timeline, otherwise: float) -> Trace:
    """A cross where a sub-model failed: at its last known loss, or beside the others' first one."""
    mark, per_epoch = sign(part.number), steps_per_epoch(part)
    epochs = part.loss.x[-1] if part.loss.x else part.steps_done / per_epoch if per_epoch else 0.0
    loss = part.loss.y[-1] if part.loss.y else otherwise
    cause = part.cause or "It failed."
    return scatter([epochs], [loss], "markers") | {
        "name": f"{mark.letter}  {short(part.name)}",
        "uid": identity(part.name, "failed"),
        "marker": {"symbol": "x", "size": 10, "color": mark.colour, "line": {"width": 1, "color": TEXT}},
        "hovertemplate": as_label(f"failed: {cause[:CAUSE_CHARACTERS]}"),
        "meta": {"of": part_key(part.name), "kind": "failed", "steps": per_epoch, "s": single(when.at([epochs]))},
    }


def _first_loss(view: RunView) -> float:
    return next((part.loss.y[0] for part in view.submodels if part.loss.y), 1.0)


def _overlay(baseline: RunView, quantity: Quantity) -> list[Trace]:
    """Training curves of a baseline, under one chip; they lie over the hybrid's to show equality."""
    line = {"color": FAINT, "dash": BASELINE_DASHES.get(baseline.mode, "dash"), "width": 1.2}
    moments, traces = timelines(baseline), list[Trace]()
    for part in baseline.submodels:
        series = _series(part, quantity)[0]
        if series.x:
            x, y = thin(series.x, series.y, MAX_OVERLAY_POINTS)
            traces.append(
                scatter(x, y)
                | {
                    "name": f"{baseline.mode}, {sign(part.number).letter}",
                    "line": line,
                    "opacity": 0.75,
                    "uid": identity(part.name, quantity, baseline.mode),
                    "hoverinfo": "skip",  # its values would cover the chart, and they are the hybrid's own
                    "meta": {
                        "of": baseline_key(baseline.mode),
                        "part": part_key(part.name),
                        "kind": "baseline",
                        "steps": steps_per_epoch(part),
                        "s": single(moments[part.name].at(x)),
                    },
                }
            )
    return traces
