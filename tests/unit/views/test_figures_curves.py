from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ui.fake_arms import baseline, hybrid
from tests.ui.fake_views import mid_flight, submodel
from tests.unit.views.reading import unpack
from unifiednn_core.spec.lifecycle import State
from unifiednn_core.views.figures.chips import BASELINE_DASHES, baseline_key, chips, part_key
from unifiednn_core.views.figures.curves import CHART_POINTS, FEWEST_POINTS, HEIGHT_PX, MOST_POINTS, curves, has_rates
from unifiednn_core.views.figures.layout import FAINT, NAME_CHARACTERS
from unifiednn_core.views.figures.palette import sign
from unifiednn_core.views.figures.timeline import over_time
from unifiednn_core.views.runs import Series

VIEW = mid_flight()


def of(figure, key, kind="train"):
    return [trace for trace in figure["data"] if (trace["meta"]["of"], trace["meta"]["kind"]) == (key, kind)]


def overlays(figure):
    return [trace for trace in figure["data"] if trace["meta"]["kind"] == "baseline"]


def test_every_sub_model_has_a_train_and_a_test_curve_in_its_own_sign():
    figure = curves(VIEW, "loss")
    for part in VIEW.submodels:
        mark, key = sign(part.number), part_key(part.name)
        [train], [test] = of(figure, key), of(figure, key, "test")
        assert train["line"] == {"color": mark.colour, "dash": mark.dash, "width": 2}
        assert test["line"]["color"] == mark.colour and test["line"]["width"] < 2 and test["opacity"] < 1
        assert train["name"].startswith(mark.letter)
        assert unpack(train["y"])[-1] == np.float32(part.train_loss)


def test_no_chart_has_a_legend_of_its_own_and_a_long_name_is_cut():
    parts = tuple(replace(s, name=f"{s.name}-{'x' * 60}") for s in VIEW.submodels)
    figure = curves(replace(VIEW, submodels=parts), "loss", [baseline("concurrent")])
    assert figure["layout"]["showlegend"] is False and figure["layout"]["height"] == HEIGHT_PX
    assert {len(trace["name"]) for trace in of(figure, part_key(parts[0].name))} == {len("A  ") + NAME_CHARACTERS}


def test_each_point_carries_what_the_browser_needs_for_another_axis():
    [train] = of(curves(VIEW, "loss"), part_key("lenet"))
    lenet = VIEW.submodels[0]
    assert train["meta"]["steps"] == lenet.steps_total / lenet.epochs_done
    at_s = over_time(VIEW, lenet, lenet.loss).x
    assert unpack(train["meta"]["s"]).tolist() == pytest.approx(at_s, rel=1e-6)


def test_what_was_lost_is_drawn_faint_and_named_in_the_hover_alone():
    lost = Series((1.0, 2.0), (0.9, 0.8))
    first, *others = VIEW.submodels
    view = replace(VIEW, submodels=(replace(first, lost_loss=(lost, Series(), lost), lost_accuracy=(lost,)), *others))
    for quantity, count in (("loss", 2), ("accuracy", 1)):
        kept = curves(VIEW, quantity)["data"]
        traces = [trace for trace in curves(view, quantity)["data"] if trace not in kept]
        assert len(traces) == count
        for trace in traces:
            assert trace["name"].endswith("lenet: lost, trained again") and "s" not in trace["meta"]
            assert trace["line"] == {"color": sign(0).colour, "dash": sign(0).dash, "width": 1}
            assert trace["opacity"] < 0.5
            assert unpack(trace["y"]).tolist() == [np.float32(0.9), np.float32(0.8)]


def test_baselines_are_grey_and_dashed_over_the_hybrid_with_one_chip_each():
    baselines = [baseline("concurrent"), baseline("sequential")]
    figure = curves(hybrid(), "loss", baselines)
    drawn = overlays(figure)
    assert len(drawn) == 6 and drawn == figure["data"][-6:], "they lie on top, so that equal curves show both"
    known = {chip["key"]: chip for chip in chips(hybrid(), baselines)}
    for mode in ("concurrent", "sequential"):
        own = of(figure, baseline_key(mode), "baseline")
        assert [trace["meta"]["part"] for trace in own] == [
            part_key(name) for name in ("lenet", "resnet", "transformer")
        ]
        assert known[baseline_key(mode)]["name"] == mode and known[baseline_key(mode)]["letter"] == ""
        assert {trace["line"]["dash"] for trace in own} == {BASELINE_DASHES[mode]}
        assert {trace["line"]["color"] for trace in own} == {FAINT}


def test_equal_training_gives_equal_curves_by_epoch_and_other_ones_over_time():
    figure = curves(hybrid(), "loss", [baseline("concurrent")])
    [own], other = of(figure, part_key("lenet")), overlays(figure)[0]
    assert own["x"] == other["x"] and own["y"] == other["y"] and own["meta"]["s"] != other["meta"]["s"]


def test_a_baseline_without_curves_leaves_no_entry():
    empty = replace(baseline("concurrent"), submodels=())
    assert curves(hybrid(), "loss", [empty])["data"] == curves(hybrid(), "loss")["data"]


@given(st.integers(1, 40), st.integers(0, 3_000))
@settings(max_examples=15)
def test_a_chart_has_few_points_however_many_sub_models_and_however_long(count, points):
    long = Series(tuple(map(float, range(points))), tuple(map(float, range(points))))
    parts = tuple(replace(submodel(at, f"n{at}", 0, State.RUNNING), loss=long) for at in range(count))
    traces = curves(replace(VIEW, submodels=parts), "loss")["data"]
    assert len(traces) == (count if points else 0)
    drawn = [len(unpack(trace["y"])) for trace in traces]
    assert sum(drawn) <= max(CHART_POINTS, FEWEST_POINTS * count) and max(drawn, default=0) <= MOST_POINTS


def test_a_sub_model_that_failed_has_a_cross_at_its_last_loss_or_beside_the_first_of_the_others():
    first, second, *_ = VIEW.submodels
    cause = "The loss of <b>resnet</b> is nan at step 46."
    silent = replace(second, state=State.FAILED, cause=cause, loss=Series(), test_loss_curve=Series(), steps_done=2)
    for part, at in ((replace(second, state=State.FAILED, cause=cause), second.loss), (silent, None)):
        [cross] = of(curves(replace(VIEW, submodels=(first, part)), "loss"), part_key("resnet"), "failed")
        assert cross["marker"]["symbol"] == "x" and "is nan at step 46" in cross["hovertemplate"]
        assert "<b>resnet" not in cross["hovertemplate"]
        expected = first.loss.y[0] if at is None else at.y[-1]
        assert unpack(cross["y"]).tolist() == [np.float32(expected)]
    assert not of(curves(VIEW, "loss"), part_key("resnet"), "failed")


def test_the_learning_rate_of_an_epoch_holds_from_its_begin():
    first, *others = VIEW.submodels
    view = replace(VIEW, submodels=(replace(first, learning_rates=Series((1.0, 2.0), (0.1, 0.05))), *others))
    [rate] = curves(view, "rate", [baseline("concurrent")])["data"]
    assert unpack(rate["x"]).tolist() == [0.0, 1.0, 2.0] and rate["line"]["shape"] == "vh"
    assert unpack(rate["y"]).tolist() == [np.float32(0.1), np.float32(0.1), np.float32(0.05)]


def test_constant_learning_rates_are_no_chart():
    def with_rates(*rates):
        part = replace(VIEW.submodels[0], learning_rates=Series(tuple(map(float, range(len(rates)))), rates))
        return replace(VIEW, submodels=(part, *VIEW.submodels[1:]))

    assert not has_rates(VIEW) and not has_rates(with_rates(0.1, 0.1)) and has_rates(with_rates(0.1, 0.05))
