"""What stands below a sub-model that ended early: what happened, what to do, and one click to try again."""

import streamlit as st

from pages._ui import actions, frame, markup, retries, wording
from unifiednn_core.lifecycle import ENDED, Event, State
from unifiednn_core.views.runs import SubModelView


def panel(run_id: str, submodel: SubModelView) -> None:
    """Draw cause and remedy, and the retries where they are possible; nothing for one without a cause."""
    if submodel.state not in ENDED or not submodel.cause:
        return
    words = wording.STATES[submodel.state]
    if submodel.state is not State.FAILED:
        st.html(markup.quiet(words.icon, f"{submodel.name}: {submodel.cause}"))
        return
    heading = f"{submodel.name}: {words.label}"
    with st.container(key=f"panel-{submodel.name}"):
        st.html(markup.notice("red", "error", heading, submodel.cause, submodel.remedy or ""))
        if Event.RETRY in submodel.actions:
            _retries(run_id, submodel)


def _retries(run_id: str, submodel: SubModelView) -> None:
    ways = retries.offers(submodel)
    anew = f"anew-{run_id}-{submodel.name}"
    goes_on = "" if st.session_state.get(anew) else wording.from_text(submodel.checkpoint_step)
    st.html(markup.small(f"{ways[0].label}: {ways[0].sentence} {goes_on}"))
    with st.container(horizontal=True, vertical_alignment="center"):
        for place, way in enumerate(ways):
            pressed = st.button(
                way.label,
                key=f"retry-{way.kind}-{run_id}-{submodel.name}",
                type="primary" if place == 0 else "secondary",
                icon=":material/replay:",
                help=f"{way.sentence} {goes_on}",
            )
            if pressed:
                _retry(run_id, submodel.name, way, from_start=bool(st.session_state.get(anew)))
        if submodel.checkpoint_step is not None:
            st.checkbox("From the start", key=anew, help="Leave the checkpoint aside and train it anew.")


def _retry(run_id: str, name: str, way: retries.Retry, *, from_start: bool) -> None:
    service = frame.service()
    actions.attempt(
        lambda: service.retry(
            run_id, name, learning_rate=way.learning_rate, batch_split=way.batch_split, from_start=from_start
        )
    )
    st.rerun()
