import pytest

from tests.ui.fake_arms import baseline, hybrid
from tests.ui.fake_views import mid_flight
from tests.unit.figures.reading import unpack
from unifiednn_core.figures.palette import sign
from unifiednn_core.figures.schedule import arms_schedule, schedule
from unifiednn_core.figures.times import launch_offset_s

VIEW = mid_flight()


def test_the_schedule_has_a_lane_for_each_sub_model_in_order_of_arrival_from_the_top():
    figure = schedule(VIEW)
    assert figure["layout"]["yaxis"]["categoryarray"] == ["C  transformer", "B  resnet", "A  lenet"]
    for submodel, trace in zip(VIEW.submodels, figure["data"], strict=True):
        assert trace["marker"]["color"] == sign(submodel.number).colour
        held_s = sum(s.end_s - s.start_s for s in VIEW.schedule if s.submodel == submodel.name)
        assert unpack(trace["x"]).sum() == pytest.approx(held_s)
        assert all(submodel.name in text and "steps" in text for text in trace["customdata"])


def test_the_processes_of_a_concurrent_baseline_overlap():
    figure = schedule(baseline("concurrent"))
    assert [unpack(trace["base"]).tolist() for trace in figure["data"]] == [[0.0]] * 3
    assert "each in its own process" in figure["layout"]["title"]["text"]


def test_the_arms_stand_below_each_other_from_their_launch_and_baselines_are_hatched():
    views = [hybrid(), baseline("concurrent"), baseline("sequential")]
    figure = arms_schedule(views)
    assert figure["layout"]["yaxis"]["ticktext"] == ["A  lenet", "B  resnet", "C  transformer"] * 3
    places = figure["layout"]["yaxis"]["tickvals"]
    assert (
        places == sorted(set(places)) and figure["layout"]["yaxis"]["range"][0] > figure["layout"]["yaxis"]["range"][1]
    )
    assert ["pattern" in trace["marker"] for trace in figure["data"]] == [False] * 3 + [True] * 6
    for view, first in zip(views, figure["data"][::3], strict=True):
        assert unpack(first["base"])[0] == pytest.approx(launch_offset_s(view))
    assert [note["text"].split("</b>")[0] for note in figure["layout"]["annotations"]] == [
        "<b>hybrid", "<b>concurrent", "<b>sequential",
    ]  # fmt: skip


def test_no_arm_makes_an_empty_figure():
    assert arms_schedule([])["data"] == []
