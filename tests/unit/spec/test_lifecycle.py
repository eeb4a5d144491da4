import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unifiednn_core.base.errors import IllegalTransition
from unifiednn_core.spec.lifecycle import (
    ENDED,
    PERSON_EVENTS,
    TRANSITIONS,
    Event,
    State,
    actions,
    next_state,
    submodel_actions,
)


@given(st.sampled_from(State), st.sampled_from(Event))
def test_a_pair_outside_the_table_is_an_error_that_names_what_is_possible(state: State, event: Event) -> None:
    if (state, event) in TRANSITIONS:
        assert next_state("lenet", state, event) is TRANSITIONS[state, event]
        return
    with pytest.raises(IllegalTransition) as raised:
        next_state("lenet", state, event, ["queued", "running"])
    assert "lenet is " + state in str(raised.value)
    assert "queued → running" in str(raised.value)
    for allowed in raised.value.allowed:
        assert (state, Event(allowed)) in TRANSITIONS


def test_only_a_person_or_a_recovery_leads_out_of_an_end() -> None:
    ways = {(before, event) for before, event in TRANSITIONS if before in ENDED}
    assert ways == {(State.INTERRUPTED, Event.RESUME), (State.FAILED, Event.RETRY)}


def test_every_state_but_the_first_can_be_reached() -> None:
    reached, todo = {State.QUEUED}, [State.QUEUED]
    while todo:
        here = todo.pop()
        for (before, _), after in TRANSITIONS.items():
            if before is here and after not in reached:
                reached.add(after)
                todo.append(after)
    assert reached == set(State)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (State.QUEUED, {Event.PAUSE, Event.STOP, Event.DISCARD}),
        (State.RUNNING, {Event.PAUSE, Event.SAVE, Event.STOP, Event.DISCARD}),
        (State.PAUSING, {Event.STOP, Event.DISCARD}),
        (State.PAUSED, {Event.RESUME, Event.STOP, Event.DISCARD}),
        (State.STOPPING, set()),
        (State.INTERRUPTED, {Event.RESUME}),
        (State.FAILED, {Event.RETRY}),
        (State.COMPLETED, set()),
    ],
)
def test_people_are_offered_what_changes_something(state: State, expected: set[Event]) -> None:
    assert actions(state) == expected


@given(st.sampled_from(State), st.sampled_from(State))
def test_a_submodel_is_offered_no_more_than_its_run_can_do(run: State, submodel: State) -> None:
    offered = submodel_actions(run, submodel)
    assert offered <= actions(submodel)
    if run in ENDED:
        assert offered <= {Event.RETRY}
    if run is not State.RUNNING:
        assert Event.SAVE not in offered


@given(st.sampled_from(State), st.lists(st.sampled_from(sorted(PERSON_EVENTS)), max_size=6))
def test_whatever_people_ask_a_worker_can_always_come_to_an_end(state: State, asked: list[Event]) -> None:
    for event in asked:
        if event in actions(state):
            state = next_state("run", state, event)
    if state not in ENDED:
        assert (state, Event.LOSE) in TRANSITIONS
        assert (state, Event.FAIL) in TRANSITIONS


def test_the_error_survives_a_process_border() -> None:
    error = IllegalTransition("run", "completed", "pause", [], ["running"])
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error)
    assert "this state is final" in str(again)
