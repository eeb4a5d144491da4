from dataclasses import replace

import numpy as np
import pytest

from tests.ui.fake_arms import baseline, breakdown, hybrid
from tests.ui.fake_views import mid_flight, submodel
from tests.unit.views.reading import named, unpack
from unifiednn_core.base.units import MIB
from unifiednn_core.spec.lifecycle import State
from unifiednn_core.views.figures import memory as chart
from unifiednn_core.views.figures.chips import baseline_key
from unifiednn_core.views.figures.memory import MAX_INSTANTS, MAX_STRETCHES, MAX_SUBMODELS, SHADES, bands, stretches
from unifiednn_core.views.memory import KINDS, MemoryBreakdown, MemoryLayer

memory = chart.memory
VIEW = replace(hybrid(), launched_at_s=None, breakdown=breakdown(gap=None), marks=())


def stacked(figure):
    return [trace for trace in figure["data"] if "stackgroup" in trace]


def test_the_bands_stand_in_the_fixed_order_from_the_context_to_the_unexplained():
    drawn = bands(VIEW.breakdown, VIEW.submodels)
    kinds = [band.kind for band in drawn]
    assert kinds == sorted(kinds, key=KINDS.index)
    assert (kinds[0], kinds[-1]) == ("context", "unexplained")
    assert [trace["name"] for trace in stacked(memory(VIEW))] == [band.name for band in drawn]


def test_the_bands_add_up_to_the_total_line():
    figure = memory(VIEW)
    [total] = named(figure, "total")
    heights = sum(np.nan_to_num(unpack(trace["y"])) for trace in stacked(figure))
    assert heights == pytest.approx(unpack(total["y"]), rel=1e-5)
    assert unpack(total["y"])[0] == np.float32(VIEW.breakdown.total_bytes[0] / MIB)


def test_a_gap_in_sampling_is_a_gap_in_every_band_and_in_the_total():
    figure = memory(replace(VIEW, breakdown=breakdown(gap=(30, 33))))
    assert np.isnan(unpack(named(figure, "total")[0]["y"])).sum() >= 1
    for trace in stacked(figure):
        seconds = unpack(trace["x"])
        assert not ((seconds >= 30) & (seconds < 33)).any()
    assert {trace["stackgroup"] for trace in stacked(figure)} == {"stretch 0", "stretch 1"}


def test_a_short_gap_survives_thinning():
    many = breakdown(names=("lenet",), seconds=5_000, gap=(2_500, 2_501))
    figure = memory(replace(VIEW, breakdown=many))
    assert np.isnan(unpack(named(figure, "total")[0]["y"])).sum() == 1
    assert len({trace["stackgroup"] for trace in stacked(figure)}) == 2


def test_many_gaps_cost_no_more_than_so_many_sets_of_bands():
    at_s = tuple(map(float, range(400)))
    holes = tuple(None if second % 4 == 3 else 5.0 * MIB for second in range(400))
    figure = memory(
        replace(VIEW, breakdown=MemoryBreakdown(at_s, holes, (MemoryLayer("context", None, holes),), "process PSS"))
    )
    assert 1 < len({trace["stackgroup"] for trace in stacked(figure)}) <= MAX_STRETCHES


def test_a_layer_that_could_not_be_had_leaves_the_others_alone():
    first, *others = VIEW.breakdown.layers
    unknown = replace(VIEW.breakdown, layers=(replace(first, size_bytes=(None,) * 60), *others))
    names = {trace["name"] for trace in stacked(memory(replace(VIEW, breakdown=unknown)))}
    assert "context" not in names and {"A weights", "unexplained"} <= names


def test_a_chart_has_few_points_however_long_the_run_and_keeps_its_peak():
    long = breakdown(seconds=20_000, gap=None)
    peak = 9_999 * MIB
    totals = tuple(peak if second == 7_777 else total for second, total in enumerate(long.total_bytes))
    figure = memory(replace(VIEW, breakdown=replace(long, total_bytes=totals)))
    [total] = named(figure, "total")
    assert len(unpack(total["y"])) <= MAX_INSTANTS and unpack(total["y"]).max() == np.float32(peak / MIB)
    assert sum(len(unpack(trace["y"])) for trace in stacked(figure)) < 13_000


def test_of_many_sub_models_the_largest_keep_their_sign_and_the_others_share_one_band_of_a_kind():
    names = tuple(f"net{at}" for at in range(20))
    parts = tuple(submodel(at, name, 1, State.RUNNING) for at, name in enumerate(names))
    drawn = bands(breakdown(names, gap=None), parts)
    signed = {band.group for band in drawn if band.group in names}
    assert signed == set(names[-(MAX_SUBMODELS - 1) :]), "later ones are larger"
    assert [band.kind for band in drawn if band.group == "other sub-models"] == list(SHADES)
    whole = sum(np.nansum(band.size_bytes) for band in drawn)
    assert whole == pytest.approx(sum(breakdown(names, gap=None).total_bytes))


def test_a_run_without_a_breakdown_shows_its_total_alone():
    view = mid_flight()
    [total] = memory(view)["data"]
    assert unpack(total["y"])[0] == np.float32(view.memory.y[0] / MIB) and total["fill"] == "tozeroy"


def test_the_totals_of_other_arms_are_dashed_and_all_count_from_their_launch():
    view = replace(VIEW, launched_at_s=VIEW.started_at_s - 1.5)
    figure = memory(view, [baseline("concurrent"), baseline("sequential")])
    for mode in ("concurrent", "sequential"):
        [trace] = named(figure, mode)
        assert trace["line"]["dash"] != "solid" and trace["meta"] == {"of": baseline_key(mode), "kind": "arm"}
        assert unpack(trace["x"])[0] == np.float32(1.0), "launched 1 s before its start"
    assert unpack(named(figure, "total")[0]["x"])[0] == np.float32(1.5)


def test_stretches_are_what_lies_between_gaps():
    assert stretches([True, True, False, True]) == [slice(0, 2), slice(3, 4)]
    assert stretches([]) == stretches([False, False]) == []
