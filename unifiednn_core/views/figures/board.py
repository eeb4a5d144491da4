"""The charts of a page as one document: figures, chips for all of them, and the words of the controls."""

import json
import zlib
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from unifiednn_core.views.figures import marks
from unifiednn_core.views.figures.chips import Chip, chips
from unifiednn_core.views.figures.curves import FORMATS, Quantity, curves, has_rates
from unifiednn_core.views.figures.layout import Figure
from unifiednn_core.views.figures.memory import device, memory
from unifiednn_core.views.figures.schedule import MIN_HEIGHT_PX, schedule
from unifiednn_core.views.figures.timeline import span_s
from unifiednn_core.views.memory import Mark
from unifiednn_core.views.runs import RunView

Axis = Literal["choice", "epochs", "seconds"]
"""What a chart is drawn over: what the viewer chooses, or always the same. `seconds` can become the clock."""
WIDE_MEMORY_PX = 300
TITLES: dict[Quantity, str] = {"loss": "Loss", "accuracy": "Accuracy", "rate": "Learning rate"}
WORDS = {
    "charts": "Charts",
    "shown": "Sub-models in the charts",
    "chipTip": "Click: show it alone. Shift-click, or H: hide it.",
    "search": "Find a sub-model",
    "all": "Show all",
    "x": "Over",
    "epoch": "epoch",
    "epochs": "epochs trained",
    "step": "step",
    "steps": "steps done",
    "seconds": "seconds since the launch",
    "clock": "time of day",
    "scale": "Scale",
    "scaleAuto": "automatic",
    "scaleLinear": "linear",
    "scaleLog": "logarithmic",
    "isLog": "automatic: log",
    "isLinear": "automatic: linear",
    "smooth": "Smoothing",
    "clip": "Without outliers",
    "clipTip": "Shows the middle 96 % of the values.",
    "context": "Without context",
    "contextTip": "Leaves out what the process holds before any network is loaded. Baselines are left out, too.",
    "zoomed": "zoomed · reset",
    "thickThin": "thick: training, thin: test",
    "values": "Values",
    "valuesOf": "Values: {chart}",
    "copy": "Copy as CSV",
    "copied": "Copied",
    "close": "Close",
    "curve": "curve",
    "value": "value",
    "from": "from (s)",
    "to": "to (s)",
    "what": "what",
    "thinned": "{all} values; one in {n} is shown.",
    "shades": "each sub-model, strong to faint: weights, gradients, optimizer, transient",
    "broken": "This chart cannot be drawn: {error}.",
    "hidden": "hidden",
}
"""Texts of the controls, by the name that the script knows."""


class Chart(NamedTuple):
    """A figure with its place on the board. Charts of one `cell` share a place behind tabs."""

    name: str
    title: str
    figure: Figure
    label: str
    """For screen readers."""
    axis: Axis
    cell: str
    wide: bool = False
    value_format: str = ""
    """Of a curve, in d3's terms; empty for other charts."""
    can_be_log: bool = False
    note: str = ""


def of_run(view: RunView, baselines: Sequence[RunView] = ()) -> list[Chart]:
    """Loss, accuracy, schedule and memory; the learning rate and the GPU behind tabs, if there are any."""
    _, until_s = span_s(view, baselines)
    charts = [curve_chart(view, "loss", baselines), curve_chart(view, "accuracy", baselines)]
    if has_rates(view):
        charts.append(curve_chart(view, "rate")._replace(cell="accuracy"))
    turns = schedule(view, until_s=until_s)
    height_px = max(MIN_HEIGHT_PX, turns["layout"]["height"])
    charts.append(_turns(turns))
    if view.utilisation.x or view.power_w.x:
        figure, label = device(view, height_px, until_s), "Utilisation and power of the GPU"
        charts.append(Chart("gpu", "GPU", figure, label, "seconds", "schedule"))
    return [*charts, _memory(view, baselines, height_px, until_s)]


def of_hybrid(view: RunView) -> list[Chart]:
    """Turns and memory of a hybrid with all its members."""
    _, until_s = span_s(view)
    turns = schedule(view, until_s=until_s)
    return [_turns(turns), _memory(view, (), turns["layout"]["height"], until_s)]


def curve_chart(view: RunView, quantity: Quantity, baselines: Sequence[RunView] = (), axis: Axis = "choice") -> Chart:
    """A chart of curves."""
    title = TITLES[quantity]
    return Chart(
        quantity,
        title,
        curves(view, quantity, baselines),
        f"{title} of each sub-model",
        axis,
        quantity,
        value_format=FORMATS[quantity],
        can_be_log=quantity != "accuracy",
    )


def _turns(figure: Figure) -> Chart:
    return Chart("schedule", "Schedule", figure, "Turns of each sub-model on the device", "seconds", "schedule")


def _memory(view: RunView, baselines: Sequence[RunView], height_px: int, until_s: float) -> Chart:
    figure, label = memory(view, baselines, height_px, until_s), "Memory over time, by use"
    return Chart("memory", "Memory", figure, label, "seconds", "memory", note=_signs(view.marks))


def _signs(events: Sequence[Mark]) -> str:
    return marks.key(events) if events else ""


def document(view: RunView, charts: Sequence[Chart], baselines: Sequence[RunView] = ()) -> dict[str, Any]:
    """The board of a run as JSON."""
    launched_at_s = view.launched_at_s or view.started_at_s
    launch_ms = None if launched_at_s is None else 1000 * launched_at_s
    return of_charts(view.run_id, charts, chips(view, baselines), launch_ms)


def of_charts(
    name: str, charts: Sequence[Chart], shown_chips: Sequence[Chip] = (), launch_ms: float | None = None
) -> dict[str, Any]:
    """A board as JSON; `revision` of a chart changes with its content."""
    drawn: list[dict[str, Any]] = []
    for chart in charts:
        figure, meta = chart.figure, chart.figure["layout"].get("meta", {})
        shown = {
            "name": chart.name,
            "title": chart.title,
            "label": chart.label,
            "axis": chart.axis,
            "cell": chart.cell,
            "wide": chart.wide,
            "format": chart.value_format,
            "log": chart.can_be_log,
            "note": meta.get("note", ""),
            "key": meta.get("key", []),
            "below": chart.note,
        }
        revision = zlib.crc32(json.dumps([shown, figure], separators=(",", ":")).encode())
        drawn.append(shown | {"figure": figure, "revision": revision})
    return {"run": name, "launchMs": launch_ms, "chips": list(shown_chips), "charts": drawn, "words": WORDS}


def packed(board: dict[str, Any]) -> bytes:
    """The board for a browser: JSON, deflated."""
    return zlib.compress(json.dumps(board, separators=(",", ":")).encode(), 1)
