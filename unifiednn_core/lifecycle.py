"""The states of a run and of a sub-model, and the one table of moves between them.

Run and sub-model share this vocabulary. People cause `PERSON_EVENTS`; the machine reports the rest. Buttons, command
line and service all ask this table what is possible, so they cannot disagree.
"""

from collections.abc import Sequence
from enum import StrEnum

from unifiednn_core.errors import IllegalTransition


class State(StrEnum):
    """Where a run or a sub-model stands."""

    DRAFT = "draft"
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
    """What happens to a run or a sub-model."""

    SUBMIT = "submit"  # a person hands it in
    CLAIM = "claim"  # a worker is being started for it
    BEGIN = "begin"  # the first step after a wait is about to run
    PAUSE = "pause"  # a person asks for a pause
    HOLD = "hold"  # the pause is reached, at a step boundary
    RESUME = "resume"  # a person asks to go on; after a death the machine may ask by itself
    RELEASE = "release"  # its run gave the device back, and it waits again
    SAVE = "save"  # a person asks for a checkpoint now
    STOP = "stop"  # a person asks to end it, keeping what was learnt
    DISCARD = "discard"  # a person asks to end it, keeping nothing
    RETRY = "retry"  # a person asks to try again what failed
    HALT = "halt"  # the stop is reached, at a step boundary
    COMPLETE = "complete"  # everything that was asked for is done
    FAIL = "fail"  # an error ended it; cause and remedy are recorded
    LOSE = "lose"  # its process or host died


S, E = State, Event

ALIVE = (S.QUEUED, S.STARTING, S.RUNNING, S.PAUSING, S.PAUSED, S.STOPPING)
ENDED = frozenset({S.COMPLETED, S.STOPPED, S.FAILED, S.INTERRUPTED})
PERSON_EVENTS = frozenset({E.SUBMIT, E.PAUSE, E.RESUME, E.SAVE, E.STOP, E.DISCARD, E.RETRY})

TRANSITIONS: dict[tuple[State, Event], State] = {
    (S.DRAFT, E.SUBMIT): S.QUEUED,
    (S.QUEUED, E.CLAIM): S.STARTING,
    (S.QUEUED, E.BEGIN): S.RUNNING,
    (S.STARTING, E.BEGIN): S.RUNNING,
    (S.RUNNING, E.SAVE): S.RUNNING,
    (S.RUNNING, E.RELEASE): S.QUEUED,
    (S.QUEUED, E.PAUSE): S.PAUSING,
    (S.STARTING, E.PAUSE): S.PAUSING,
    (S.RUNNING, E.PAUSE): S.PAUSING,
    (S.PAUSING, E.PAUSE): S.PAUSING,  # asked twice
    (S.PAUSING, E.BEGIN): S.PAUSING,  # the request overtook the report of the first step
    (S.PAUSING, E.HOLD): S.PAUSED,
    (S.PAUSED, E.RESUME): S.QUEUED,
    (S.INTERRUPTED, E.RESUME): S.QUEUED,
    (S.FAILED, E.RETRY): S.QUEUED,
    (S.STOPPING, E.CLAIM): S.STOPPING,  # a worker comes up only to write out what was learnt
    (S.STOPPING, E.BEGIN): S.STOPPING,  # the request overtook the report of the first step
    (S.STOPPING, E.HOLD): S.STOPPING,  # the stop overtook the pause
    (S.STOPPING, E.HALT): S.STOPPED,
    (S.RUNNING, E.COMPLETE): S.COMPLETED,
    (S.PAUSING, E.COMPLETE): S.COMPLETED,
    (S.QUEUED, E.COMPLETE): S.COMPLETED,  # a run was resumed while its last sub-model was being written
    (S.PAUSED, E.COMPLETE): S.COMPLETED,  # the last sub-model of a paused run was stopped
    (S.STOPPING, E.COMPLETE): S.COMPLETED,
    **{(state, E.STOP): S.STOPPING for state in ALIVE},  # asked twice is asked once
    **{(state, E.DISCARD): S.STOPPING for state in ALIVE if state is not S.STOPPING},  # what is being kept is kept
    **{(state, E.FAIL): S.FAILED for state in ALIVE},
    **{(state, E.LOSE): S.INTERRUPTED for state in ALIVE},
    (S.PAUSED, E.LOSE): S.PAUSED,  # it was kept before it was paused
}


def next_state(what: str, state: State, event: Event, history: Sequence[str] = ()) -> State:
    """State that `event` leads to; raises `IllegalTransition` naming `what` where the table has no such move."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        possible = actions(state) if event in PERSON_EVENTS else {e for s, e in TRANSITIONS if s is state}
        allowed = [e.value for e in Event if e in possible]
        raise IllegalTransition(what, state.value, event.value, allowed, history) from None


def actions(state: State) -> frozenset[Event]:
    """What a person can usefully do to a thing in this state."""
    return frozenset(
        event
        for (before, event), after in TRANSITIONS.items()
        if before is state and event in PERSON_EVENTS and (after is not before or event is Event.SAVE)
    )


def submodel_actions(run: State, submodel: State) -> frozenset[Event]:
    """What a person can usefully do to a sub-model of a run in this state."""
    if run in ENDED:
        return actions(submodel) & {Event.RETRY} if run is State.FAILED else frozenset()
    return actions(submodel) - {Event.SAVE} if run is not State.RUNNING else actions(submodel)
