"""What stands between the head of a run and its figures: what is the matter, what is awaited, what was recovered."""

import streamlit as st

from pages._ui import actions, frame, markup, wording
from unifiednn_core.lifecycle import ENDED, Event, State
from unifiednn_core.views.runs import RunView

WAITING = (State.QUEUED, State.STARTING, State.PAUSING, State.PAUSED, State.STOPPING)


def draw(view: RunView) -> None:
    """Draw the banners that apply, the loudest first."""
    age_s = view.heartbeat_age_s
    if view.state not in ENDED and age_s is not None and age_s > wording.STALE_AFTER_S:
        st.html(markup.notice("orange", "warning", "Stale", wording.stale_text(age_s)))
    words = wording.STATES[view.state]
    if view.state is State.INTERRUPTED:
        _interrupted(view)
    elif view.state is State.FAILED:
        st.html(markup.notice("red", words.icon, words.label, view.cause or words.sentence, view.remedy or ""))
    elif view.state in WAITING:
        place = f" Position {view.queue_position} in the queue." if view.queue_position else ""
        sentence = wording.PAUSED_RUN if view.state is State.PAUSED else words.sentence
        if view.waits_for and view.state is State.QUEUED:
            sentence = f"It waits for {view.waits_for}."
        st.html(markup.notice(words.colour, words.icon, words.label, sentence + place))
    if quiet := waiting(view) + _recovered(view):
        st.html(quiet)


def waiting(view: RunView) -> str:
    """What was asked for and has not taken effect, one line each, as HTML."""
    return "".join(
        markup.quiet(
            "hourglass_top",
            wording.waiting_text(command.text, command.submodel, frame.age(command.issued_at_s), view.state),
        )
        for command in view.waiting_commands
    )


def own_actions(view: RunView) -> frozenset[Event]:
    """Actions whose buttons stand in a banner, beside what they do."""
    return frozenset({Event.RESUME}) if view.state is State.INTERRUPTED else frozenset()


def _interrupted(view: RunView) -> None:
    words = wording.STATES[State.INTERRUPTED]
    with st.container(key="panel-interrupted"):
        st.html(markup.notice("red", words.icon, words.label, view.cause or words.sentence, view.remedy or ""))
        if allowed := view.actions & own_actions(view):
            st.html(markup.small(wording.RESUME_RUN))
            actions.state_buttons(view.run_id, view.name, allowed, primary=True)


def _recovered(view: RunView) -> str:
    text = wording.recovered_text(view.recoveries, sum(submodel.redone_steps for submodel in view.submodels))
    return markup.quiet("history", text) if text else ""
