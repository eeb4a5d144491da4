"""Dialogs that end training or add a sub-model. A page draws them in its body; a tick would close its own."""

from collections.abc import Sequence

import streamlit as st

from pages._ui import actions, arm_words, arms, drafts, frame, markup, submodel_form, wording
from unifiednn_core.base.errors import BadInput, Finding, UnifiedNNError
from unifiednn_core.spec.lifecycle import Event


def draw_stop() -> None:
    """Draw the stop or discard dialog if it is open. Call it once, in the body of a page."""
    asked = actions.opened_dialog("stop", "discard")
    if asked is None:
        return
    view = frame.service().runs.observe(asked.run_id)
    baseline = arms.is_baseline(view)
    title = "Stop the baseline?" if baseline else "Stop training?" if asked.kind == "stop" else "Discard training?"
    draw = _discard if asked.kind == "discard" else _stop
    st.dialog(title, on_dismiss=actions.close_dialog)(draw)(asked, asked.submodel or view.name, baseline)


def _stop(asked: actions.Dialog, what: str, baseline: bool) -> None:
    if baseline:
        survives, no, yes = arm_words.STOP_BASELINE, "Keep it running", "Stop the baseline"
    else:
        survives = wording.STOP_SUBMODEL if asked.submodel else wording.STOP_RUN
        no, yes = "Keep training", "Stop and keep results"
    st.html(f"<p>{markup.bold(what)}: {markup.text(survives)}</p>")
    with st.container(horizontal=True, horizontal_alignment="right"):
        if st.button(no, key="stop-no"):
            _close()
        if not baseline and st.button("Discard…", key="stop-discard", help="End it and keep nothing."):
            actions.open_dialog("discard", asked.run_id, asked.submodel)
            st.rerun()
        if st.button(yes, key="stop-yes", type="primary", icon=":material/stop:"):
            _end(Event.STOP, asked)


def _discard(asked: actions.Dialog, what: str, baseline: bool) -> None:
    lost = wording.DISCARD_SUBMODEL if asked.submodel else wording.DISCARD_RUN
    st.html(f"<p>{markup.bold(what)}: {markup.text(lost)}</p>")
    typed = st.text_input(f"Type its name to confirm: {wording.plain(what)}", key=f"discard-name-{asked.number}")
    icon, wrong = ":material/delete_forever:", typed != what
    with st.container(horizontal=True, horizontal_alignment="right"):
        if st.button("Keep training", key="discard-no"):
            _close()
        if st.button("Discard", key="discard-yes", type="primary", icon=icon, disabled=wrong):
            _end(Event.DISCARD, asked)


def _end(event: Event, asked: actions.Dialog) -> None:
    actions.carry_out(event, asked.run_id, asked.submodel)
    _close()


def _close() -> None:
    actions.close_dialog()
    st.rerun()


def draw_add() -> None:
    """Draw the dialog that adds a sub-model, if it is open. Call it once, in the body of a page."""
    asked = actions.opened_dialog("add")
    if asked is not None:
        name = wording.plain(frame.service().runs.observe(asked.run_id).name)
        st.dialog(f"Add a sub-model to {name}", width="large", on_dismiss=actions.close_dialog)(_add)(asked)


def _add(asked: actions.Dialog) -> None:
    key = f"add{asked.number}"
    taken = [submodel.name for submodel in frame.service().runs.observe(asked.run_id).submodels]
    st.html(markup.small(wording.ADD_HELP))
    entered = submodel_form.submodel_form({}, taken, key=key)
    with st.container(horizontal=True, horizontal_alignment="right"):
        if st.button("Cancel", key="add-cancel"):
            _close()
        words = "Add anyway" if st.session_state.get(f"{key}-warned") == entered else "Add to the run"
        pressed = st.button(words, key="add-save", type="primary", icon=":material/add:")
    if pressed:
        _submit(asked.run_id, entered, taken, key=key)


def _submit(run_id: str, entered: drafts.Document, taken: list[str], *, key: str) -> None:
    def on_warnings(findings: Sequence[Finding]) -> None:
        """Show warnings first; a second submission of the same sub-model ignores them."""
        if findings and st.session_state.get(f"{key}-warned") != entered:
            st.session_state[f"{key}-warned"] = entered
            raise BadInput(findings)

    try:
        found = submodel_form.findings_of(entered, taken, key=key)
        if found:
            raise BadInput(found)
        spec, _ = drafts.spec_or_findings({"submodels": [entered]})
        if spec is not None:
            with st.spinner("Checking model and data…"):
                frame.service().runs.add_submodel(run_id, spec.submodels[0], on_warnings=on_warnings)
    except BadInput as error:
        submodel_form.tell(error.findings, key=key)
        st.rerun()  # the form stands above and has been drawn without them
    except UnifiedNNError as error:
        actions.show_error(error)
        return
    _close()
