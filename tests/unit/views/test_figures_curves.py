from dataclasses import replace

import numpy as np
import pytest

from tests.ui.fake_arms import baseline, hybrid
from tests.ui.fake_views import mid_flight
from tests.unit.views.reading import as_sent, unpack
from unifiednn_core.views.figures.curves import BASELINE_DASHES, HEIGHT_PX
from unifiednn_core.views.figures.curves import curves as build
from unifiednn_core.views.figures.layout import FAINT
from unifiednn_core.views.figures.palette import sign
from unifiednn_core.views.runs import Series

curves = as_sent(build)
VIEW = mid_flight()


def overlays(figure):
    return [trace for trace in figure["data"] if trace["line"]["color"] == FAINT]


def test_every_sub_model_has_a_train_and_a_test_curve_in_its_own_sign():
    traces = curves(VIEW, "loss")["data"]
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
        kept = curves(VIEW, quantity)["data"]
        traces = [trace for trace in curves(view, quantity)["data"] if trace not in kept]
        assert len(traces) == count
        for trace in traces:
            assert trace["name"].endswith("lenet: lost, trained again") and trace["showlegend"] is False
            assert trace["line"] == {"color": sign(0).colour, "dash": sign(0).dash, "width": 1}
            assert trace["opacity"] < 0.5
            assert unpack(trace["y"]).tolist() == [np.float32(0.9), np.float32(0.8)]


@pytest.mark.parametrize("over", ["epochs", "seconds"])
def test_baselines_are_grey_and_dashed_over_the_hybrid_with_one_entry_each(over):
    baselines = [baseline("concurrent"), baseline("sequential")]
    figure = curves(hybrid(), "loss", baselines, over)
    drawn = overlays(figure)
    assert len(drawn) == 6 and drawn == figure["data"][-6:], "they lie on top, so that equal curves show both"
    for mode in ("concurrent", "sequential"):
        own = [trace for trace in drawn if trace["legendgroup"] == f"baseline {mode}"]
        assert [trace["showlegend"] for trace in own] == [True, False, False]
        assert own[0]["name"] == mode and {trace["line"]["dash"] for trace in own} == {BASELINE_DASHES[mode]}


def test_equal_training_gives_equal_curves_by_epoch_and_other_ones_over_time():
    by_epoch = curves(hybrid(), "loss", [baseline("concurrent")])
    over_time = curves(hybrid(), "loss", [baseline("concurrent")], "seconds")

    def both(figure):
        own = next(t for t in figure["data"] if t["legendgroup"] == "lenet" and t["showlegend"])
        return own, overlays(figure)[0]

    own, other = both(by_epoch)
    assert own["x"] == other["x"] and own["y"] == other["y"]
    own, other = both(over_time)
    assert own["y"] == other["y"] and own["x"] != other["x"]


def test_a_baseline_without_curves_leaves_no_entry():
    empty = replace(baseline("concurrent"), submodels=())
    assert curves(hybrid(), "loss", [empty])["data"] == curves(hybrid(), "loss")["data"]


def test_a_long_legend_stands_below_the_title():
    assert curves(VIEW, "loss")["layout"]["height"] == HEIGHT_PX
    taller = curves(VIEW, "loss", [baseline("concurrent")])["layout"]
    assert taller["height"] > HEIGHT_PX and taller["margin"]["t"] > curves(VIEW, "loss")["layout"]["margin"]["t"]


def test_long_curves_are_thinned_to_800_points():
    long = Series(tuple(map(float, range(50_000))), tuple(map(float, range(50_000))))
    view = replace(VIEW, submodels=tuple(replace(s, loss=long) for s in VIEW.submodels))
    assert len(unpack(curves(view, "loss")["data"][0]["y"])) <= 800
    assert len(unpack(overlays(curves(view, "loss", [replace(view, mode="concurrent")]))[0]["y"])) <= 400
