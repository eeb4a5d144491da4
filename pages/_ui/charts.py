"""The charts of a run and of a comparison, updated in place, so that zoom and hover survive streaming data."""

import json
import zlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import streamlit as st

from unifiednn_core.views import markup, report, wording
from unifiednn_core.views.figures import marks
from unifiednn_core.views.figures.curves import curves
from unifiednn_core.views.figures.layout import Figure
from unifiednn_core.views.figures.memory import HEIGHT_PX, device, memory
from unifiednn_core.views.figures.schedule import schedule
from unifiednn_core.views.report.charts import Chart
from unifiednn_core.views.runs import RunView

REPORT = Path(report.__file__).parent
"""Folder of the scripts and styles that pages and reports share."""


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
    _draw(turns, "schedule", schedule(view, 0 if gpu else HEIGHT_PX), "Turns of each sub-model on the device")
    if gpu:
        _draw(turns, "gpu", device(view), "Utilisation and power of the GPU")
    _draw(use, "memory", memory(view), "Memory over time, by use")
    notes = [markup.quiet("info", note) for note in view.memory_notes]
    if view.marks:
        notes.insert(0, markup.small(f"{marks.key(view.marks)}. A click on a name in the legend hides it."))
    if notes:
        use.html("".join(notes))


def of_hybrid(view: RunView) -> None:
    """Turns and memory of a hybrid with all its members."""
    if not view.schedule and not view.memory.x:
        st.html(markup.small(wording.NO_CURVES))
        return
    turns, use = st.columns(2, gap="medium")
    _draw(turns, "schedule", schedule(view, HEIGHT_PX), "Turns of each sub-model on the device")
    _draw(use, "memory", memory(view), "Memory over time, by use")


def of_comparison(charts: Sequence[Chart]) -> None:
    """The charts of a comparison, two side by side; wide ones take the whole width."""
    narrow = iter([chart for chart in charts if not chart.wide])
    for pair in zip(narrow, narrow, strict=False):
        for place, chart in zip(st.columns(2, gap="medium"), pair, strict=True):
            _draw(place, chart.name, chart.figure, chart.label)
    for chart in charts:
        if chart.wide:
            _draw(st.container(), chart.name, chart.figure, chart.label)


def _draw(place: st.delta_generator.DeltaGenerator, name: str, figure: Figure, label: str) -> None:
    """Draw a figure; the browser redraws it only if it differs from the last one of this name."""
    document = figure.to_plotly_json()
    revision = zlib.crc32(json.dumps(document, separators=(",", ":")).encode())
    data = {"figure": document, "label": label, "revision": revision}
    with place:
        _component()(data=data, key=f"chart-{name}", height=document["layout"]["height"])


@cache
def _component() -> Any:
    files = (REPORT / "theme.js", Path(__file__).with_name("live_chart.js"))
    script = "\n".join(file.read_text(encoding="utf-8") for file in files)
    return st.components.v2.component("unifiednn_live_chart", js=script, isolate_styles=False)
