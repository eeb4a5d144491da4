import math
from dataclasses import replace

import pytest

from tests.ui.fake_views import START_S, ended, submodel
from unifiednn_core.spec.lifecycle import State
from unifiednn_core.views.figures.timeline import over_time, span_s, timelines
from unifiednn_core.views.runs import Series, Slice

PART = replace(submodel(0, "lenet", 2, State.COMPLETED), epochs=2, steps_total=20, steps_done=20)


def turn(start_s, end_s, steps, name="lenet"):
    return Slice(submodel=name, start_s=start_s, end_s=end_s, steps=steps, reason="")


def view(*turns, launched_at_s=None, state=State.COMPLETED):
    return replace(
        ended(), state=state, submodels=(PART,), schedule=turns, started_at_s=START_S, launched_at_s=launched_at_s
    )


def test_a_point_is_reached_when_its_step_is_in_its_turn():
    waited = view(turn(0, 10, 10), turn(10, 40, 5, "other"), turn(40, 60, 10))
    series = over_time(waited, PART, Series((0.1, 0.5, 1.0, 1.5, 2.0), (5, 4, 3, 2, 1)))
    assert series.x == pytest.approx((1.0, 5.0, 10.0, 50.0, 60.0), abs=1e-3)
    assert series.y == (5, 4, 3, 2, 1)


def test_seconds_count_from_the_launch():
    late = view(turn(0, 10, 20), launched_at_s=START_S - 2.5)
    assert late.launch_offset_s == 2.5
    assert over_time(late, PART, Series((2.0,), (1.0,))).x == pytest.approx((12.5,))
    assert view().launch_offset_s == 0.0


def test_what_came_before_the_first_known_turn_is_left_out():
    latest = view(turn(50, 60, 5))  # of 20 steps the last 5 are known
    series = over_time(latest, PART, Series((0.5, 1.0, 1.75, 2.0), (4, 3, 2, 1)))
    assert series.y == (2, 1) and series.x == pytest.approx((55.0, 60.0), abs=1e-3)


def test_a_turn_that_is_still_open_has_no_times_yet():
    live = view(turn(0, 10, 10), state=State.RUNNING)
    assert over_time(live, PART, Series((1.0, 1.5), (3, 2))).y == (3,)


def test_without_turns_or_points_there_is_nothing():
    assert over_time(view(), PART, Series((1.0,), (1.0,))) == Series()
    assert over_time(view(turn(0, 1, 20)), PART, Series()) == Series()
    assert over_time(view(turn(0, 1, 0)), PART, Series((1.0,), (1.0,))) == Series()


def test_a_baseline_begins_with_its_first_step_and_not_with_its_launch():
    started = view(turn(0, 50, 0), turn(50, 60, 20))
    assert over_time(started, PART, Series((0.1, 2.0), (3, 1))).x == pytest.approx((50.5, 60.0))


def test_the_turn_that_goes_on_places_the_points_of_its_steps():
    live = view(turn(0, 10, 10), turn(30, 40, 10)._replace(running=True), state=State.RUNNING)
    assert over_time(live, PART, Series((1.0, 1.5), (3, 2))).x == pytest.approx((10.0, 35.0))


def test_each_point_of_a_curve_has_its_moment_or_none():
    live = view(turn(0, 10, 10), turn(30, 40, 5), state=State.RUNNING)
    at_s = timelines(live)["lenet"].at([0.5, 1.0, 1.5, 1.9])
    assert at_s[:3].tolist() == pytest.approx([5.0, 10.0, 40.0]) and math.isnan(at_s[3])
    assert all(map(math.isnan, timelines(view())["lenet"].at([0.5, 1.0])))


def test_charts_over_time_share_the_range_from_the_launch_to_the_last_thing_known():
    late = view(turn(0, 10, 20), launched_at_s=START_S - 2.5)
    longer = replace(late, memory=Series((0.0, 30.0), (1.0, 1.0)))
    assert span_s(replace(late, memory=Series())) == (0.0, 12.5)
    assert span_s(replace(late, memory=Series()), [longer]) == (0.0, 32.5)
