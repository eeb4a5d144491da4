import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ui.fake_arms import baseline
from tests.ui.fake_views import mid_flight
from tests.unit.views.reading import named, unpack
from unifiednn_core.views.figures import schedule as chart
from unifiednn_core.views.figures.palette import sign
from unifiednn_core.views.figures.schedule import FAINTEST, MAX_BARS, gather
from unifiednn_core.views.runs import Slice

schedule = chart.schedule
VIEW = mid_flight()


def test_the_schedule_has_a_lane_for_each_sub_model_in_order_of_arrival_from_the_top():
    figure = schedule(VIEW)
    assert figure["layout"]["yaxis"]["categoryarray"] == ["C  transformer", "B  resnet", "A  lenet"]
    for part, trace in zip(VIEW.submodels, figure["data"], strict=True):
        assert trace["marker"]["color"] == sign(part.number).colour
        held_s = sum(s.end_s - s.start_s for s in VIEW.schedule if s.submodel == part.name)
        assert unpack(trace["x"]).sum() == pytest.approx(held_s)
        assert all(part.name in text and "steps" in text for text in trace["customdata"])


def test_the_processes_of_a_concurrent_baseline_overlap():
    figure = schedule(baseline("concurrent"))
    assert [unpack(trace["base"]).tolist() for trace in figure["data"]] == [[1.0]] * 3, "1 s after the launch"
    assert "each in its own process" in figure["layout"]["meta"]["note"]


@st.composite
def schedules(draw):
    """Slices one after the other, as one device gives them, some with idle time between."""
    slices, now_s = [], 0.0
    for _ in range(draw(st.integers(0, 80))):
        now_s += draw(st.sampled_from([0.0, 0.0, 0.5, 3.0]))
        end_s = now_s + draw(st.sampled_from([0.25, 1.0, 2.0]))
        name = draw(st.sampled_from("abc"))
        slices.append(Slice(submodel=name, start_s=now_s, end_s=end_s, steps=draw(st.integers(1, 9)), reason=name))
        now_s = end_s
    return slices


def held_s(turns, name):
    return sum(turn.share * (turn.end_s - turn.start_s) for turn in turns if turn.submodel == name)


@given(schedules(), st.integers(3, 40))
def test_bars_are_few_lose_no_step_and_say_how_long_each_sub_model_held_the_device(slices, limit):
    turns = gather(slices, limit)
    assert len(turns) <= limit
    for name in "abc":
        own = [s for s in slices if s.submodel == name]
        assert sum(turn.steps for turn in turns if turn.submodel == name) == sum(s.steps for s in own)
        assert held_s(turns, name) == pytest.approx(sum(s.end_s - s.start_s for s in own))


@given(schedules(), st.integers(3, 40))
def test_bars_of_a_lane_do_not_overlap_and_together_never_hold_more_than_one_device(slices, limit):
    turns = gather(slices, limit)
    for name in "abc":
        lane = [turn for turn in turns if turn.submodel == name]
        assert all(one.end_s <= other.start_s + 1e-9 for one, other in itertools.pairwise(lane))
    if any(turn.share < 1 for turn in turns):
        for start_s in {turn.start_s for turn in turns}:
            assert sum(turn.share for turn in turns if turn.start_s == start_s) <= 1 + 1e-6


def test_back_to_back_turns_of_one_sub_model_are_one_bar_and_others_part_it():
    slices = [Slice(submodel=n, start_s=i, end_s=i + 1.0, steps=2, reason=f"{i}") for i, n in enumerate("aaba")]
    bars = {(turn.submodel, turn.start_s, turn.end_s, turn.steps, turn.turns) for turn in gather(slices)}
    assert bars == {("a", 0, 2.0, 4, 2), ("a", 3, 4.0, 2, 1), ("b", 2, 3.0, 2, 1)}


def test_a_long_round_robin_is_drawn_in_bins_that_are_as_full_as_the_device_was_theirs():
    """Bars that grew over ever longer gaps once made fourteen sub-models hold the device at once."""
    slices = [Slice(submodel="ab"[i % 2], start_s=i, end_s=i + 0.5, steps=1, reason="") for i in range(20_000)]
    turns = gather(slices)
    assert len(turns) == MAX_BARS == 600
    assert {round(turn.share, 2) for turn in turns} <= {0.24, 0.25, 0.26}
    view = replace(VIEW, schedule=tuple(s._replace(submodel={"a": "lenet", "b": "resnet"}[s.submodel]) for s in slices))
    lenet, resnet, *_ = schedule(view)["data"]
    assert unpack(lenet["marker"]["opacity"]) == pytest.approx(0.25, abs=0.01)
    assert lenet["customdata"][0].startswith("<b>lenet</b>: turns: 34, 26% of 1 min 07 s, 34 steps")
    assert unpack(resnet["marker"]["opacity"]).min() >= FAINTEST


def test_where_only_the_latest_turns_are_known_the_time_before_them_is_hatched():
    turns = tuple(Slice(submodel="lenet", start_s=t, end_s=t + 1.0, steps=1, reason="") for t in range(5_000, 7_000))
    figure = schedule(replace(VIEW, schedule=turns), until_s=7_000.0)
    [older] = named(figure, "older turns are not shown")
    assert unpack(older["x"])[:4].tolist() == [0.0, 0.0, 5_000.0, 5_000.0]
    assert figure["layout"]["xaxis"]["range"] == [0.0, 7_000.0]
    assert not named(schedule(replace(VIEW, schedule=turns[1:])), "older turns are not shown")


def test_the_turn_that_goes_on_is_drawn_until_now():
    turn = Slice(submodel="lenet", start_s=5.0, end_s=65.0, steps=7, reason="It came first.", running=True)
    lenet = schedule(replace(VIEW, schedule=(turn,)))["data"][0]
    assert unpack(lenet["x"]).tolist() == [60.0]
    assert "7 steps<br>5.0 s to now<br>It came first." in lenet["customdata"][0]
