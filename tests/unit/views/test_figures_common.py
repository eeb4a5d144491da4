"""What holds for every chart."""

import json
from dataclasses import replace

import plotly.graph_objects as go
import pytest

from tests.ui.fake_arms import baseline, hybrid
from tests.ui.fake_views import mid_flight, queued
from unifiednn_core.views.figures.curves import curves
from unifiednn_core.views.figures.memory import device, memory
from unifiednn_core.views.figures.schedule import arms_schedule, schedule
from unifiednn_core.views.runs import Series

BUSY = replace(hybrid(), utilisation=Series((0.0, 1.0), (0.4, 0.9)), power_w=Series((0.0, 1.0), (80.0, 240.0)))
CHARTS = {
    "loss": lambda view: curves(view, "loss"),
    "accuracy": lambda view: curves(view, "accuracy"),
    "learning rate": lambda view: curves(view, "rate"),
    "with a baseline": lambda view: curves(view, "loss", [baseline("concurrent")]),
    "memory": memory,
    "memory of arms": lambda view: memory(view, [baseline("concurrent"), baseline("sequential")]),
    "schedule": schedule,
    "schedule of arms": lambda view: arms_schedule([view, baseline("concurrent")]),
    "device": device,
}
every_chart = pytest.mark.parametrize("chart", CHARTS.values(), ids=list(CHARTS))


@every_chart
@pytest.mark.parametrize("view", [mid_flight(), BUSY], ids=["live", "ended"])
def test_a_figure_is_json_and_keeps_its_zoom_over_ticks(chart, view):
    document = chart(view)
    assert json.loads(json.dumps(document)) == document
    assert document["layout"]["uirevision"] == view.run_id
    assert document["layout"]["height"] > 100


@every_chart
@pytest.mark.parametrize("view", [mid_flight(), BUSY], ids=["live", "ended"])
def test_a_figure_is_valid_in_plotlys_terms(chart, view):
    document = chart(view)
    assert len(go.Figure(document).data) == len(document["data"]), "it raises for what plotly does not know"


@every_chart
def test_texts_from_outside_cannot_become_plotly_markup(chart):
    evil = "<a href='javascript:alert(1)'>x</a>"
    bad = "<a href=x>"
    parts = tuple(replace(s, name=bad) for s in BUSY.submodels)
    breakdown = replace(
        BUSY.breakdown,
        source=evil,
        layers=tuple(replace(x, submodel=x.submodel and bad) for x in BUSY.breakdown.layers),
    )
    view = replace(
        BUSY,
        submodels=parts,
        breakdown=breakdown,
        memory_source=evil,
        schedule=tuple(s._replace(reason=evil, submodel=bad) for s in BUSY.schedule),
        marks=tuple(replace(mark, text=evil) for mark in BUSY.marks),
    )
    document = chart(view)
    shown = json.dumps([document["data"], document["layout"]])
    assert "<a" not in shown


def test_a_run_without_data_makes_empty_figures():
    view = replace(queued(), memory=Series())
    assert curves(view, "loss")["data"] == memory(view)["data"] == device(view)["data"] == []
    assert all(len(trace["y"]) == 0 for trace in schedule(view)["data"])
    half = replace(view, utilisation=Series((0.0,), (0.5,)))  # a GPU that does not tell its power
    for figure in (schedule(view), curves(view, "loss"), device(half)):
        json.dumps(figure)
    for figure in (memory(view), device(view)):
        assert "not available" in figure["layout"]["annotations"][0]["text"]
