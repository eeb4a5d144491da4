"""The charts of a comparison, for the page and the report alike, and the scripts that draw them."""

import importlib.util
from collections.abc import Mapping
from pathlib import Path

from unifiednn_core.spec.run import BASELINES, Mode
from unifiednn_core.views.figures.board import WIDE_MEMORY_PX, Axis, Chart, curve_chart
from unifiednn_core.views.figures.curves import Quantity
from unifiednn_core.views.figures.memory import memory
from unifiednn_core.views.figures.schedule import arms_schedule
from unifiednn_core.views.figures.timeline import span_s
from unifiednn_core.views.runs import RunView

HERE = Path(__file__).parent
SCRIPTS = ("theme.js", "traces.js", "values.js", "board.js")
AXES: tuple[Axis, ...] = ("epochs", "seconds")
OVER = {"epochs": "by epoch", "seconds": "over time"}


def charts(views: Mapping[Mode, RunView], quantities: tuple[Quantity, ...]) -> list[Chart]:
    """Curves by epochs and by time, memory, and the schedule of all arms; none without the hybrid's view."""
    hybrid = views.get("hybrid")
    if hybrid is None:
        return []
    baselines = arms_of(views)
    shown = []
    for quantity in quantities:
        for axis in AXES:
            chart = curve_chart(hybrid, quantity, baselines, axis)
            name, title = f"{quantity}-{axis}", f"{chart.title} {OVER[axis]}"
            label = f"{title} of each sub-model, baselines dashed"
            shown.append(chart._replace(name=name, title=title, cell=name, label=label))
    _, until_s = span_s(hybrid, baselines)
    used = memory(hybrid, baselines, WIDE_MEMORY_PX, until_s)
    turns = arms_schedule([hybrid, *baselines], until_s)
    label = "Memory of the hybrid by use, baselines dashed"
    shown.append(Chart("memory", "Memory", used, label, "seconds", "memory", wide=True))
    label = "Turns of each sub-model on the device, in each arm"
    return [*shown, Chart("schedule", "Schedule", turns, label, "seconds", "schedule", wide=True)]


def arms_of(views: Mapping[Mode, RunView]) -> list[RunView]:
    """The baselines among these views, in their usual order."""
    return [views[mode] for mode in BASELINES if mode in views]


def scripts() -> str:
    """The scripts that draw a board, for the browser, besides plotly.js."""
    return "\n".join((HERE / name).read_text(encoding="utf-8") for name in SCRIPTS)


def plotly_js() -> Path:
    """plotly.min.js of the installed plotly package; raises `ModuleNotFoundError` without it."""
    spec = importlib.util.find_spec("plotly")  # finds the package without importing it
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("the package 'plotly' is not installed", name="plotly")
    return Path(spec.origin).parent / "package_data" / "plotly.min.js"
