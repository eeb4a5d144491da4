"""Adding a sub-model to a run that lives, with the form of the Build page."""

import streamlit as st

from pages._ui import actions, dialogs, drafts, frame, markup, submodel_form, wording
from unifiednn_core.errors import BadInput, UnifiedNNError


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
        pressed = st.button("Add to the run", key="add-save", type="primary", icon=":material/add:")
    if pressed:
        _hand_in(asked.run_id, entered, taken, key=key)


def _hand_in(run_id: str, entered: drafts.Document, taken: list[str], *, key: str) -> None:
    try:
        found = submodel_form.findings_of(entered, taken, key=key)
        if found:
            raise BadInput(found)
        spec, _ = drafts.spec_or_findings({"submodels": [entered]})
        if spec is not None:
            with st.spinner("Checking model and data…"):
                frame.service().add_submodel(run_id, spec.submodels[0])
    except BadInput as error:
        submodel_form.tell(error.findings, key=key)
        st.rerun()  # the form stands above and has been drawn without them
    except UnifiedNNError as error:
        actions.show_error(error)
        return
    dialogs.forget()
    st.rerun()
