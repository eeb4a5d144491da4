"""The charts of a comparison, for the page and the report alike, and the plotly.js that draws them."""

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from unifiednn_core.spec.run import ALL_BASELINES, Mode
from unifiednn_core.views.figures.curves import Axis, Quantity, curves
from unifiednn_core.views.figures.layout import Figure
from unifiednn_core.views.figures.memory import memory
from unifiednn_core.views.figures.schedule import arms_schedule
from unifiednn_core.views.runs import RunView

AXES: tuple[Axis, ...] = ("epochs", "seconds")


class Chart(NamedTuple):
    """A figure with its name, and a label for screen readers."""

    name: str
    figure: Figure
    label: str
    wide: bool = False


def charts(views: Mapping[Mode, RunView], quantities: tuple[Quantity, ...]) -> list[Chart]:
    """Curves by epochs and by time, memory, and the schedule of all arms; none without the hybrid's view."""
    hybrid = views.get("hybrid")
    if hybrid is None:
        return []
    baselines = [views[mode] for mode in ALL_BASELINES if mode in views]
    shown = [
        Chart(
            f"{quantity}-{axis}",
            curves(hybrid, quantity, baselines, axis),
            f"{quantity.capitalize()} of each sub-model over {axis}, baselines dashed",
        )
        for quantity in quantities
        for axis in AXES
    ]
    used, turns = memory(hybrid, baselines), arms_schedule([hybrid, *baselines])
    shown.append(Chart("memory", used, "Memory of the hybrid by use, baselines dashed", wide=True))
    return [*shown, Chart("schedule", turns, "Turns of each sub-model on the device, in each arm", wide=True)]


def plotly_js() -> Path:
    """plotly.min.js of the installed plotly package; raises `ModuleNotFoundError` without it."""
    spec = importlib.util.find_spec("plotly")  # finds the package without importing it
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("the package 'plotly' is not installed", name="plotly")
    return Path(spec.origin).parent / "package_data" / "plotly.min.js"
