"""Parting a data set of the library into one to train on and one to test with."""

import streamlit as st

from pages._ui import actions, frame, wording
from unifiednn_core.errors import UnifiedNNError
from unifiednn_core.views.runs import FileView

HELP = (
    "Writes two new data sets; this one stays as it is. The same share and seed always give the same two files, "
    "and samples keep their order."
)
LABEL = "Split into training and test"
BY_CLASS_HELP = "Each class gives the same share to the test, so that both parts are balanced alike."


def draw(file: FileView, *, key: str = "split", label: str = LABEL) -> tuple[FileView, FileView] | None:
    """Draw the form behind a button; returns the parts, to train on and to test with, once they are in the library."""
    with (
        st.popover(label, icon=":material/call_split:", help=HELP),
        st.form(f"{key}-{file.sha256[:12]}", border=False),
    ):
        share = st.slider("Test share", 5, 50, 20, step=5, format="%d %%")
        seed = st.number_input("Seed", min_value=0, max_value=2**31 - 1, value=0, step=1)
        classes = file.facts.get("classes") is not None and not file.facts.get("target_shape")
        by_class = st.checkbox("By class", value=classes, disabled=not classes, help=BY_CLASS_HELP)
        if not st.form_submit_button("Split", type="primary"):
            return None
        try:
            with st.spinner("Writing the two parts…"):
                train, test = frame.service().split_data(
                    file.sha256, test_share=share / 100, seed=int(seed), by_class=by_class
                )
        except UnifiedNNError as error:
            actions.show_error(error)
            return None
    names = f"{wording.plain(train.filename)} and {wording.plain(test.filename)}"
    st.toast(f"{names} are in the library.", icon=":material/check:")
    return train, test
