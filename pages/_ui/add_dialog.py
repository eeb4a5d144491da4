"""Adding a sub-model to a run that lives, with the form of the Build page."""

from collections.abc import Sequence

import streamlit as st

from pages._ui import actions, dialogs, drafts, frame, markup, submodel_form, wording
from unifiednn_core.errors import BadInput, Finding, UnifiedNNError


def draw() -> None:
    """Open the dialog if it was asked for. Call it once, in the body of a page."""
    asked = dialogs.asked("add")
    if asked is not None:
        name = wording.plain(frame.service().observe(asked.run_id).name)
        st.dialog(f"Add a sub-model to {name}", width="large", on_dismiss=dialogs.forget)(_add)(asked)


def _add(asked: dialogs.Asked) -> None:
    key = f"add{asked.number}"
    taken = [submodel.name for submodel in frame.service().observe(asked.run_id).submodels]
    st.html(markup.small(wording.ADD_HELP))
    entered = submodel_form.submodel_form({}, taken, key=key)
    with st.container(horizontal=True, horizontal_alignment="right"):
        if st.button("Cancel", key="add-cancel"):
            dialogs.forget()
            st.rerun()
        words = "Add anyway" if st.session_state.get(f"{key}-warned") == entered else "Add to the run"
        pressed = st.button(words, key="add-save", type="primary", icon=":material/add:")
    if pressed:
        _hand_in(asked.run_id, entered, taken, key=key)


def _hand_in(run_id: str, entered: drafts.Document, taken: list[str], *, key: str) -> None:
    def told(findings: Sequence[Finding]) -> None:
        """Show warnings first; handed in once more as it is, the sub-model is added all the same."""
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
                frame.service().add_submodel(run_id, spec.submodels[0], told=told)
    except BadInput as error:
        submodel_form.tell(error.findings, key=key)
        st.rerun()  # the form stands above and has been drawn without them
    except UnifiedNNError as error:
        actions.show_error(error)
        return
    dialogs.forget()
    st.rerun()
