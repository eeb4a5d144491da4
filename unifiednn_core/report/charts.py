"""The charts of a comparison, the same on the page and in the report."""

from collections.abc import Mapping
from dataclasses import dataclass

from unifiednn_core.figures.curves import Axis, Quantity, curves
from unifiednn_core.figures.layout import Figure
from unifiednn_core.figures.memory import memory
from unifiednn_core.figures.schedule import arms_schedule
from unifiednn_core.views.comparison import BASELINES, Mode
from unifiednn_core.views.runs import RunView


@dataclass(frozen=True, slots=True)
class Chart:
    """A figure with the name that it goes by and what it shows, in words."""

    name: str
    figure: Figure
    label: str
    wide: bool = False


def charts(
    views: Mapping[Mode, RunView],
    quantities: tuple[Quantity, ...] = ("loss",),
    over: tuple[Axis, ...] = ("epochs", "seconds"),
) -> list[Chart]:
    """Curves by epochs and by time, memory, and the schedule of all arms; none without the hybrid's view."""
    hybrid = views.get("hybrid")
    if hybrid is None:
        return []
    baselines = [views[mode] for mode in BASELINES if mode in views]
    drawn = [
        Chart(
            f"{quantity}-{axis}",
            curves(hybrid, quantity, baselines, axis),
            f"{quantity.capitalize()} of each sub-model over {axis}, baselines dashed",
        )
        for quantity in quantities
        for axis in over
    ]
    return [
        *drawn,
        Chart(
            "memory",
            memory(hybrid, baselines),
            "Memory of the hybrid by use, totals of the baselines dashed",
            wide=True,
        ),
        Chart("schedule", arms_schedule([hybrid, *baselines]), "Who held the device and when, in each arm", wide=True),
    ]
