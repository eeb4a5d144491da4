"""Choosing a file of the library, or uploading one there."""

from collections.abc import Sequence

import streamlit as st

from pages._ui import drafts, uploads
from unifiednn_core.views.runs import FileView

NOTHING = ""


def pick(
    label: str,
    files: Sequence[FileView],
    chosen: str | None,
    suffixes: tuple[str, ...],
    *,
    key: str,
    nothing: str | None = None,
) -> str:
    """Draw a choice among files of the library, and an upload into it; returns the reference, or "" for none.

    `nothing` is what "none" is called where it may be chosen.
    """
    wanted = st.session_state.get(f"{key}-uploaded", chosen)
    names = {drafts.reference(file): file.filename for file in files}
    options = ([NOTHING] if nothing else []) + list(names)
    if chosen and chosen not in options:  # a path of a spec that was loaded, or a file that is gone
        options.append(chosen)
    index = options.index(wanted) if wanted in options else (0 if nothing else None)
    picked = st.selectbox(
        label,
        options,
        index=index,
        format_func=lambda ref: names.get(ref, ref) or nothing or "",
        key=f"{key}-pick-{wanted}",
        placeholder="choose from the library",
    )
    with st.popover("Upload", icon=":material/upload:", type="tertiary", key=f"{key}-popover"):
        file = uploads.upload(f"{label}: {', '.join(f'.{s}' for s in suffixes)}", suffixes, key=f"{key}-upload")
    if file is not None:
        st.session_state[f"{key}-uploaded"] = drafts.reference(file)
        st.rerun()
    return picked or ""
