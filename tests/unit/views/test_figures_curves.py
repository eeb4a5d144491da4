from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ui.fake_arms import baseline, hybrid
from tests.ui.fake_views import mid_flight, submodel
from tests.unit.views.reading import unpack
from unifiednn_core.spec.lifecycle import State
from unifiednn_core.views.figures.chips import part_key
from unifiednn_core.views.figures.curves import CHART_POINTS, FEWEST_POINTS, MOST_POINTS, curves, has_rates
from unifiednn_core.views.figures.timeline import over_time
from unifiednn_core.views.runs import Series

VIEW = mid_flight()


def of(figure, key, kind="train"):
    return [trace for trace in figure["data"] if (trace["meta"]["of"], trace["meta"]["kind"]) == (key, kind)]


def overlays(figure):
    return [trace for trace in figure["data"] if trace["meta"]["kind"] == "baseline"]


def test_each_point_carries_what_the_browser_needs_for_another_axis():
    [train] = of(curves(VIEW, "loss"), part_key("lenet"))
    lenet = VIEW.submodels[0]
    assert train["meta"]["steps"] == lenet.steps_total / lenet.epochs_done
    at_s = over_time(VIEW, lenet, lenet.loss).x
    assert unpack(train["meta"]["s"]).tolist() == pytest.approx(at_s, rel=1e-6)


def test_equal_training_gives_equal_curves_by_epoch_and_other_ones_over_time():
    figure = curves(hybrid(), "loss", [baseline("concurrent")])
    [own], other = of(figure, part_key("lenet")), overlays(figure)[0]
    assert own["x"] == other["x"] and own["y"] == other["y"] and own["meta"]["s"] != other["meta"]["s"]


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
