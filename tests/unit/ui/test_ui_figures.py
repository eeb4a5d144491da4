import base64
import json
import re
from dataclasses import replace

import numpy as np
import pytest

from pages._ui import figures
from pages._ui.palette import sign
from tests.ui.fake_views import mid_flight, queued
from unifiednn_core.units import MIB
from unifiednn_core.views import Series

VIEW = mid_flight()


def unpack(array):
    return np.frombuffer(base64.b64decode(array["bdata"]), "<f4")


def all_figures(view):
    return [
        figures.curves(view, "loss"),
        figures.curves(view, "accuracy"),
        figures.memory(view),
        figures.schedule(view),
    ]


@pytest.mark.parametrize("figure", all_figures(VIEW), ids=["loss", "accuracy", "memory", "schedule"])
def test_a_figure_is_json_and_keeps_its_zoom_over_ticks(figure):
    assert json.loads(json.dumps(figure)) == figure
    assert figure["layout"]["uirevision"] == VIEW.run_id
    assert figure["layout"]["height"] > 100


@pytest.mark.parametrize("figure", all_figures(VIEW), ids=["loss", "accuracy", "memory", "schedule"])
def test_text_and_lines_take_their_colour_from_the_theme(figure):
    layout = json.dumps(figure["layout"])
    assert not re.findall(r"#[0-9A-Fa-f]{6}", layout)
    assert "var(--st-text-color)" in layout


def test_a_run_without_data_makes_empty_figures():
    loss, accuracy, memory, schedule = all_figures(replace(queued(), memory=Series()))
    assert loss["data"] == accuracy["data"] == memory["data"] == []
    assert all(trace["y"] == [] for trace in schedule["data"])


def test_every_sub_model_has_a_train_and_a_test_curve_in_its_own_sign():
    traces = figures.curves(VIEW, "loss")["data"]
    for submodel in VIEW.submodels:
        mark = sign(submodel.number)
        train, test = (trace for trace in traces if trace["legendgroup"] == submodel.name)
        assert train["line"] == {"color": mark.colour, "dash": mark.dash, "width": 2}
        assert test["line"]["color"] == mark.colour and test["line"]["width"] < 2 and test["opacity"] < 1
        assert (train["showlegend"], test["showlegend"]) == (True, False)
        assert train["name"].startswith(mark.letter)
        assert unpack(train["y"])[-1] == np.float32(submodel.train_loss)


def test_what_was_lost_is_drawn_faint_and_named_in_the_hover_alone():
    lost = Series((1.0, 2.0), (0.9, 0.8))
    first, *others = VIEW.submodels
    view = replace(VIEW, submodels=(replace(first, lost_loss=(lost, Series(), lost), lost_accuracy=(lost,)), *others))
    for quantity, count in (("loss", 2), ("accuracy", 1)):
        kept = figures.curves(VIEW, quantity)["data"]
        traces = [trace for trace in figures.curves(view, quantity)["data"] if trace not in kept]
        assert len(traces) == count
        for trace in traces:
            assert trace["name"].endswith("lenet: lost, trained again") and trace["showlegend"] is False
            assert trace["line"] == {"color": sign(0).colour, "dash": sign(0).dash, "width": 1}
            assert trace["opacity"] < 0.5
            assert unpack(trace["y"]).tolist() == [np.float32(0.9), np.float32(0.8)]


def test_memory_is_drawn_in_mib_with_its_source_in_the_title():
    figure = figures.memory(VIEW)
    assert unpack(figure["data"][0]["y"])[0] == np.float32(VIEW.memory.y[0] / MIB)
    assert VIEW.memory_source in figure["layout"]["title"]["text"]
    assert "not available" in figures.memory(replace(VIEW, memory_source=None))["layout"]["title"]["text"]


def test_the_schedule_has_a_lane_for_each_sub_model_in_order_of_arrival_from_the_top():
    figure = figures.schedule(VIEW)
    assert figure["layout"]["yaxis"]["categoryarray"] == ["C  transformer", "B  resnet", "A  lenet"]
    for submodel, trace in zip(VIEW.submodels, figure["data"], strict=True):
        assert trace["marker"]["color"] == sign(submodel.number).colour
        held_s = sum(s.end_s - s.start_s for s in VIEW.schedule if s.submodel == submodel.name)
        assert unpack(trace["x"]).sum() == pytest.approx(held_s)
        assert all(submodel.name in text and "steps" in text for text in trace["customdata"])


def test_long_curves_are_thinned_to_800_points():
    long = Series(tuple(map(float, range(50_000))), tuple(map(float, range(50_000))))
    view = replace(VIEW, memory=long, submodels=tuple(replace(s, loss=long) for s in VIEW.submodels))
    assert len(unpack(figures.memory(view)["data"][0]["y"])) <= 800
    assert len(unpack(figures.curves(view, "loss")["data"][0]["y"])) <= 800


def test_texts_from_outside_cannot_become_plotly_markup():
    evil = "<a href='javascript:alert(1)'>x</a>"
    slices = tuple(replace(s, reason=evil) for s in VIEW.schedule)
    view = replace(VIEW, memory_source=evil, schedule=slices)
    assert "<a" not in "".join(json.dumps(figure) for figure in all_figures(view))
