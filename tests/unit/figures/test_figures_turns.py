import itertools

from hypothesis import given
from hypothesis import strategies as st

from unifiednn_core.figures.turns import MAX_BARS, merge
from unifiednn_core.views.runs import Slice


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


def steps_of(turns):
    total = dict.fromkeys("abc", 0)
    for turn in turns:
        total[turn.submodel] += turn.steps
    return total


@given(schedules(), st.integers(3, 40))
def test_merging_loses_no_step_and_no_turn_and_stays_below_the_limit(slices, limit):
    turns = merge(slices, limit)
    assert len(turns) <= limit
    assert steps_of(turns) == steps_of(slices)
    assert sum(turn.turns for turn in turns) == len(slices)


@given(schedules(), st.integers(3, 40))
def test_a_lane_keeps_its_span_and_its_bars_do_not_overlap(slices, limit):
    turns = merge(slices, limit)
    for name in {s.submodel for s in slices}:
        lane = [turn for turn in turns if turn.submodel == name]
        own = [s for s in slices if s.submodel == name]
        assert (lane[0].start_s, lane[-1].end_s) == (own[0].start_s, own[-1].end_s)
        assert all(one.end_s <= other.start_s for one, other in itertools.pairwise(lane))


def test_back_to_back_turns_of_one_sub_model_are_one_bar_and_others_part_it():
    names = "aaba"
    slices = [Slice(submodel=n, start_s=i, end_s=i + 1.0, steps=2, reason=f"{i}") for i, n in enumerate(names)]
    bars = {(turn.submodel, turn.start_s, turn.end_s, turn.steps, turn.turns) for turn in merge(slices)}
    assert bars == {("a", 0, 2.0, 4, 2), ("a", 3, 4.0, 2, 1), ("b", 2, 3.0, 2, 1)}


def test_a_long_run_is_drawn_with_at_most_600_bars():
    slices = [Slice(submodel="ab"[i % 2], start_s=i, end_s=i + 1.0, steps=1, reason="") for i in range(20_000)]
    assert len(merge(slices)) <= MAX_BARS == 600
