"""The charts of a run's page, and of the comparison's."""

from collections.abc import Sequence

import streamlit as st

from pages._ui import markup, wording
from pages._ui.live_chart import live_chart
from unifiednn_core.figures import marks
from unifiednn_core.figures.curves import curves
from unifiednn_core.figures.device import device
from unifiednn_core.figures.layout import Figure
from unifiednn_core.figures.memory import HEIGHT_PX, memory
from unifiednn_core.figures.schedule import schedule
from unifiednn_core.report.charts import Chart
from unifiednn_core.views.runs import RunView


def of_run(view: RunView, baselines: Sequence[RunView] = ()) -> None:
    """Loss and accuracy with the baselines' dashed over them, schedule and memory."""
    if not any(submodel.loss.x for submodel in view.submodels):
        st.html(markup.small(wording.NO_CURVES))
        return
    # Two rows of two, so that a phone shows them in this order.
    loss, accuracy = st.columns(2, gap="medium")
    _draw(loss, "loss", curves(view, "loss", baselines), "Loss of each sub-model by epoch")
    _draw(accuracy, "accuracy", curves(view, "accuracy", baselines), "Accuracy of each sub-model by epoch")
    turns, use = st.columns(2, gap="medium")
    gpu = bool(view.utilisation.x or view.power_w.x)
    _draw(turns, "schedule", schedule(view, 0 if gpu else HEIGHT_PX), "Who held the device and when")
    if gpu:
        _draw(turns, "gpu", device(view), "Utilisation and power of the GPU")
    _draw(use, "memory", memory(view), "Memory in use over time, by what it is used for")
    notes = [markup.quiet("info", note) for note in view.memory_notes]
    if view.marks:
        notes.insert(0, markup.small(f"{marks.key(view.marks)}. A click on a name in the legend hides it."))
    if notes:
        use.html("".join(notes))


def of_comparison(charts: Sequence[Chart]) -> None:
    """The charts of a comparison: two beside each other, wide ones over the whole width."""
    narrow = [chart for chart in charts if not chart.wide]
    for one, other in zip(narrow[::2], narrow[1::2], strict=False):
        left, right = st.columns(2, gap="medium")
        _draw(left, one.name, one.figure, one.label)
        _draw(right, other.name, other.figure, other.label)
    for chart in charts:
        if chart.wide:
            live_chart(chart.figure, key=f"chart-{chart.name}", label=chart.label)


def _draw(place: st.delta_generator.DeltaGenerator, name: str, figure: Figure, label: str) -> None:
    with place:
        live_chart(figure, key=f"chart-{name}", label=label)
