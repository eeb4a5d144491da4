"""Uploading a file into the library, with the findings where it is refused."""

from collections.abc import Iterator
from typing import BinaryIO

import streamlit as st

from pages._ui import actions, frame, wording
from unifiednn_core.errors import UnifiedNNError
from unifiednn_core.views import FileView

MODEL_SUFFIXES = ("pt2", "pt", "pth", "safetensors")
DATA_SUFFIXES = ("pt", "safetensors", "npz")
START_SUFFIXES = ("safetensors", "pt", "pth")
CHECKPOINT_SUFFIXES = ("safetensors",)
KINDS = {
    MODEL_SUFFIXES: ("model", "weights"),
    DATA_SUFFIXES: ("data",),
    START_SUFFIXES: ("checkpoint", "weights"),
    CHECKPOINT_SUFFIXES: ("checkpoint",),
}
CHUNK_BYTES = 1024**2


def upload(label: str, suffixes: tuple[str, ...], *, key: str) -> FileView | None:
    """Draw an uploader; returns the library's file once, in the run in which it was taken in.

    The widget is replaced after each file, because the server holds an upload in memory for as long as its
    widget shows it.
    """
    count_key = f"{key}-count"
    count = st.session_state.setdefault(count_key, 0)
    # Refusal of the file before, kept over the replacement of the widget.
    if (refusal := st.session_state.get(f"{key}-refusal")) is not None:
        actions.show_error(refusal)
    sent = st.file_uploader(label, type=list(suffixes), key=f"{key}-{count}", max_upload_size=1024)
    if sent is None:
        return None
    st.session_state[count_key] = count + 1
    try:
        with st.spinner("Reading the file…"):
            file = frame.service().import_file(sent.name, _chunks(sent), KINDS[suffixes])
    except UnifiedNNError as error:
        st.session_state[f"{key}-refusal"] = error
        st.rerun()
    st.session_state.pop(f"{key}-refusal", None)
    st.toast(f"{wording.plain(file.filename)} is in the library.", icon=":material/check:")
    return file


def _chunks(sent: BinaryIO) -> Iterator[bytes]:
    while chunk := sent.read(CHUNK_BYTES):
        yield chunk
