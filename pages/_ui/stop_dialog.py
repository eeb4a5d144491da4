"""The two ways to end training: stop and keep what was learnt, or discard it, for which its name has to be typed."""

import streamlit as st

from pages._ui import actions, arm_words, arms, dialogs, frame, markup, wording
from unifiednn_core.lifecycle import Event
from unifiednn_core.views.runs import RunView


def draw() -> None:
    """Open the question if it was asked for. Call it once, in the body of a page."""
    asked = dialogs.asked("stop", "discard")
    if asked is None:
        return
    view = frame.service().observe(asked.run_id)
    what = asked.submodel or view.name
    if arms.is_baseline(view):
        st.dialog("Stop the baseline?", on_dismiss=dialogs.forget)(_stop_baseline)(asked, view)
    elif asked.kind == "stop":
        st.dialog("Stop training?", on_dismiss=dialogs.forget)(_stop)(asked, what)
    else:
        st.dialog("Discard training?", on_dismiss=dialogs.forget)(_discard)(asked, what)


def _stop(asked: dialogs.Asked, what: str) -> None:
    survives = wording.STOP_SUBMODEL if asked.submodel else wording.STOP_RUN
    st.html(f"<p>{markup.bold(what)}: {markup.text(survives)}</p>")
    with st.container(horizontal=True, horizontal_alignment="right"):
        if st.button("Keep training", key="stop-no"):
            _close()
        if st.button("Discard…", key="stop-discard", help="End it and keep nothing of it."):
            dialogs.ask("discard", asked.run_id, asked.submodel)
            st.rerun()
        if st.button("Stop and keep results", key="stop-yes", type="primary", icon=":material/stop:"):
            actions.carry_out(Event.STOP, asked.run_id, asked.submodel)
            _close()


def _stop_baseline(asked: dialogs.Asked, view: RunView) -> None:
    st.html(f"<p>{markup.bold(view.name)}: {markup.text(arm_words.STOP_BASELINE)}</p>")
    with st.container(horizontal=True, horizontal_alignment="right"):
        if st.button("Keep it running", key="stop-no"):
            _close()
        if st.button("Stop the baseline", key="stop-yes", type="primary", icon=":material/stop:"):
            actions.carry_out(Event.STOP, asked.run_id, None)
            _close()


def _discard(asked: dialogs.Asked, what: str) -> None:
    lost = wording.DISCARD_SUBMODEL if asked.submodel else wording.DISCARD_RUN
    st.html(f"<p>{markup.bold(what)}: {markup.text(lost)}</p>")
    typed = st.text_input(f"Type its name to confirm: {wording.plain(what)}", key=f"discard-name-{asked.number}")
    with st.container(horizontal=True, horizontal_alignment="right"):
        if st.button("Keep training", key="discard-no"):
            _close()
        if st.button(
            "Discard", key="discard-yes", type="primary", icon=":material/delete_forever:", disabled=typed != what
        ):
            actions.carry_out(Event.DISCARD, asked.run_id, asked.submodel)
            _close()


def _close() -> None:
    dialogs.forget()
    st.rerun()
