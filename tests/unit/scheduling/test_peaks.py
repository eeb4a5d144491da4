"""Two steps at once in less memory than the sum of their peaks."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unifiednn_core.scheduling.company import Climb, Fall, coarse, falls_of, in_turn, slowdown

SIZES = st.integers(0, 1000)
CURVES = st.lists(SIZES, min_size=1, max_size=80)


@given(CURVES, st.integers(1, 40))
def test_few_points_hide_nothing(curve, points):
    found = coarse(curve, points)
    assert len(found) == min(points, len(curve)) and max(found) == max(curve)
    if len(curve) % len(found) == 0:
        width = len(curve) // len(found)
        assert all(size <= found[at // width] for at, size in enumerate(curve))


@given(CURVES, st.data())
def test_a_fall_says_what_the_rest_of_the_step_needs(curve, data):
    ends = st.lists(st.integers(0, len(curve)), max_size=10)
    places = [(str(at), at) for at in sorted(data.draw(ends))]
    found = falls_of(curve, places)
    assert all(fall.bytes == max(curve[int(fall.parameter) :], default=0) for fall in found)
    sizes = [max(curve), *(fall.bytes for fall in found)]
    assert all(one > other for one, other in pairwise(sizes)), "each needs less than those before"


@st.composite
def climbs(draw):
    curve = draw(st.lists(SIZES, min_size=2, max_size=12))
    return curve, Climb(max(curve), falls_of(curve, [(str(at), at) for at in range(1, len(curve) + 1)]))


def worst(one, other, falls):
    """Most that two need together in any order of their moments in which only one of them climbs at a time."""
    ups = [int(fall.parameter) for fall in falls]
    return max(
        (a + b for at, a in enumerate(one) for by, b in enumerate(other) if not (at < ups[0] and by < ups[1])),
        default=0,
    )


@given(climbs(), climbs(), st.integers(0, 2000))
def test_who_climbs_in_turn_stays_under_the_limit_however_the_steps_drift(one, other, limit):
    falls = in_turn(one[1], other[1], limit)
    if falls is not None:
        assert worst(one[0], other[0], falls) <= limit


def test_who_climbs_for_most_of_a_step_is_not_worth_it():
    late, soon = (Climb(100, (Fall("w", 20, share),)) for share in (0.95, 0.6))
    assert in_turn(late, late, 130, 1.15) is None, "one after the other is as fast"
    found = in_turn(soon, soon, 130, 1.15)
    assert found == (soon.falls[0], soon.falls[0]) and slowdown(0.6, 0.6) == pytest.approx(1.2)
    assert in_turn(soon, soon, 119) is None
