from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from pages._ui import dialogs
from tests.ui.fake_views import mid_flight
from unifiednn_core.spec.lifecycle import State

names = st.lists(st.sampled_from("abcdefg"), min_size=1, unique=True)


@given(names, st.data(), st.integers(-3, 3))
def test_a_move_keeps_all_and_the_order_of_the_others(order, data, by):
    name = data.draw(st.sampled_from(order))
    moved = dialogs.moved(order, name, by)
    assert sorted(moved) == sorted(order)
    assert [n for n in moved if n != name] == [n for n in order if n != name]
    assert moved.index(name) == max(0, min(order.index(name) + by, len(order) - 1))


@given(names, st.data())
def test_the_whole_order_has_the_wanted_one_in_it_and_leaves_the_rest_in_place(order, data):
    wanted = data.draw(st.permutations(data.draw(st.lists(st.sampled_from(order), unique=True))))
    whole = dialogs.whole_order(order, wanted)
    assert [n for n in whole if n in wanted] == wanted
    assert all(whole[at] == n for at, n in enumerate(order) if n not in wanted)
    assert sorted(whole) == sorted(order)


def test_only_what_differs_is_a_change():
    assert dialogs.changed({"a": 1, "b": 2}, {"a": 1, "b": 3}) == {"b": 3}


def test_what_lives_or_can_be_resumed_is_open_and_nothing_else():
    is_open = {state for state in State if dialogs.is_open(replace(mid_flight(), state=state))}
    assert is_open == {State.QUEUED, State.STARTING, State.RUNNING, State.PAUSING, State.PAUSED, State.INTERRUPTED}
