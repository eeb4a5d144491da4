"""States of a run and of a sub-model, and the one table of transitions between them.

People cause `PERSON_EVENTS`; the machine reports the others. Buttons, command line and service all use this table, so
they cannot disagree.
"""

from collections.abc import Sequence
from enum import StrEnum
from functools import cache

from unifiednn_core.base.errors import IllegalTransition


class State(StrEnum):
    """State of a run or a sub-model."""

    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    PAUSING = "pausing"
    PAUSED = "paused"
    STOPPING = "stopping"
    COMPLETED = "completed"
    STOPPED = "stopped"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


class Event(StrEnum):
    """Event that may change the state of a run or a sub-model."""

    CLAIM = "claim"  # a worker starts for it
    BEGIN = "begin"  # the first step after a wait begins
    PAUSE = "pause"  # a person asks for a pause
    HOLD = "hold"  # the pause is reached, at a step boundary
    RESUME = "resume"  # a person asks to continue; the machine does so after a crash
    RELEASE = "release"  # its run released the device; it waits again
    SAVE = "save"  # a person asks for a checkpoint now
    STOP = "stop"  # a person asks to end it and keep its progress
    DISCARD = "discard"  # a person asks to end it and keep nothing
    RETRY = "retry"  # a person asks to retry after a failure
    HALT = "halt"  # the stop is reached, at a step boundary
    COMPLETE = "complete"  # all epochs are done
    FAIL = "fail"  # an error ended it; cause and remedy are recorded
    LOSE = "lose"  # its process or host died


S, E = State, Event

ALIVE = (S.QUEUED, S.STARTING, S.RUNNING, S.PAUSING, S.PAUSED, S.STOPPING)
ENDED = frozenset({S.COMPLETED, S.STOPPED, S.FAILED, S.INTERRUPTED})
PERSON_EVENTS = frozenset({E.PAUSE, E.RESUME, E.SAVE, E.STOP, E.DISCARD, E.RETRY})

TRANSITIONS: dict[tuple[State, Event], State] = {
    (S.QUEUED, E.CLAIM): S.STARTING,
    (S.QUEUED, E.BEGIN): S.RUNNING,
    (S.STARTING, E.BEGIN): S.RUNNING,
    (S.RUNNING, E.SAVE): S.RUNNING,
    (S.RUNNING, E.RELEASE): S.QUEUED,
    (S.STARTING, E.RELEASE): S.QUEUED,  # it left a shared hybrid before it began
    (S.QUEUED, E.PAUSE): S.PAUSING,
    (S.STARTING, E.PAUSE): S.PAUSING,
    (S.RUNNING, E.PAUSE): S.PAUSING,
    (S.PAUSING, E.PAUSE): S.PAUSING,  # idempotent
    (S.PAUSING, E.BEGIN): S.PAUSING,  # the request overtook the report of the first step
    (S.PAUSING, E.HOLD): S.PAUSED,
    (S.PAUSED, E.RESUME): S.QUEUED,
    (S.INTERRUPTED, E.RESUME): S.QUEUED,
    (S.FAILED, E.RETRY): S.QUEUED,
    (S.STOPPING, E.CLAIM): S.STOPPING,  # a worker starts only to save the progress
    (S.STOPPING, E.BEGIN): S.STOPPING,  # the request overtook the report of the first step
    (S.STOPPING, E.HOLD): S.STOPPING,  # the stop overtook the pause
    (S.STOPPING, E.HALT): S.STOPPED,
    (S.RUNNING, E.COMPLETE): S.COMPLETED,
    (S.PAUSING, E.COMPLETE): S.COMPLETED,
    (S.QUEUED, E.COMPLETE): S.COMPLETED,  # a run was resumed while its last sub-model was being written
    (S.PAUSED, E.COMPLETE): S.COMPLETED,  # the last sub-model of a paused run was stopped
    (S.STOPPING, E.COMPLETE): S.COMPLETED,
    **{(state, E.STOP): S.STOPPING for state in ALIVE},  # idempotent
    **{(state, E.DISCARD): S.STOPPING for state in ALIVE if state is not S.STOPPING},  # a stop stays a stop
    **{(state, E.FAIL): S.FAILED for state in ALIVE},
    **{(state, E.LOSE): S.INTERRUPTED for state in ALIVE},
    (S.PAUSED, E.LOSE): S.PAUSED,  # its checkpoint was written before the pause
}


def next_state(what: str, state: State, event: Event, history: Sequence[str] = ()) -> State:
    """Return the state after `event`. Raises `IllegalTransition` naming `what` if the table has no such transition."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        possible = actions(state) if event in PERSON_EVENTS else {e for s, e in TRANSITIONS if s is state}
        allowed = [e.value for e in Event if e in possible]
        raise IllegalTransition(what, state.value, event.value, allowed, history) from None


@cache
def actions(state: State) -> frozenset[Event]:
    """Actions that make sense for a person in this state."""
    return frozenset(
        event
        for (before, event), after in TRANSITIONS.items()
        if before is state and event in PERSON_EVENTS and (after is not before or event is Event.SAVE)
    )


@cache
def submodel_actions(run: State, submodel: State) -> frozenset[Event]:
    """Actions that make sense for a person on a sub-model of a run in this state."""
    if run in ENDED:
        return actions(submodel) & {Event.RETRY} if run is State.FAILED else frozenset()
    return actions(submodel) - {Event.SAVE} if run is not State.RUNNING else actions(submodel)
