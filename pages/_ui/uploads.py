"""Uploading a file into the library, or picking one on the server, with the findings where it is refused."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import streamlit as st

from pages._ui import actions, frame, wording
from unifiednn_core.errors import IntakeFailed, UnifiedNNError
from unifiednn_core.units import memory_text
from unifiednn_core.views.runs import FileView

MODEL_SUFFIXES = ("pt2", "pt", "pth", "safetensors", "json")
DATA_SUFFIXES = ("pt", "safetensors", "npz", "csv", "parquet", "zip")
START_SUFFIXES = ("safetensors", "pt", "pth")
CHECKPOINT_SUFFIXES = ("safetensors",)
KINDS = {
    MODEL_SUFFIXES: ("model", "weights"),
    DATA_SUFFIXES: ("data",),
    START_SUFFIXES: ("checkpoint", "weights"),
    CHECKPOINT_SUFFIXES: ("checkpoint",),
}
HINT = "Drop it here, or choose it. Any size; it goes on after a cut."


def upload(label: str, suffixes: tuple[str, ...], *, key: str) -> FileView | None:
    """Draw a place to drop a file on; returns the library's file once, in the run in which it was taken in.

    The browser sends the bytes to the upload routes, not through this page; only then the page is told.
    """
    # Refusal of the file before, kept until the next one.
    if (refusal := st.session_state.get(f"{key}-refusal")) is not None:
        actions.show_error(refusal)
    service = frame.service()
    again, arrived = _asked_again(key), sent_upload(label, suffixes, key=key)
    sent = arrived or again
    if sent is not None:
        st.session_state[f"{key}-last"] = sent
        return _taken_in(lambda: service.finish_upload(sent), key)
    picked = _picked_on_server(label, suffixes, key=key)
    if picked is not None:
        return _taken_in(lambda: service.import_server_file(picked, KINDS[suffixes]), key)
    return None


def sent_upload(label: str, suffixes: tuple[str, ...], *, key: str) -> str | None:
    """Draw the component; returns the id of an upload that has arrived, once."""
    round_ = st.session_state.get(f"{key}-round", 0)
    data = {
        "key": key,
        "round": round_,
        "label": label,
        "hint": HINT,
        "suffixes": list(suffixes),
        "kinds": list(KINDS[suffixes]),
        "address": "files/uploads",
    }
    sent = _component()(data=data, key=key, on_sent_change=lambda: None).sent
    return sent if isinstance(sent, str) else None


def _asked_again(key: str) -> str | None:
    """The upload that could not be read, without a fault of its own, where somebody asks for it once more."""
    refusal = st.session_state.get(f"{key}-refusal")
    if f"{key}-last" not in st.session_state or not isinstance(refusal, IntakeFailed):
        return None
    again = st.button("Read it again", key=f"{key}-again", icon=":material/refresh:")
    return str(st.session_state[f"{key}-last"]) if again else None


def _picked_on_server(label: str, suffixes: tuple[str, ...], *, key: str) -> str | None:
    files = {file.name: file for file in frame.service().server_files(suffixes)}
    if not files:
        return None
    with st.container(horizontal=True, vertical_alignment="bottom", key=f"{key}-server"):
        name = st.selectbox(
            f"{label}, from a folder on the server",
            list(files),
            index=None,
            format_func=lambda name: f"{files[name].shown}, {memory_text(files[name].size_bytes)}",
            key=f"{key}-server-file",
            placeholder="or from a folder on the server",
            label_visibility="collapsed",
        )
        taken = st.button("Take it in", key=f"{key}-server-take", icon=":material/input:", disabled=name is None)
    return name if taken else None


def _taken_in(take: Callable[[], FileView], key: str) -> FileView:
    st.session_state[f"{key}-round"] = st.session_state.get(f"{key}-round", 0) + 1
    try:
        with st.spinner("Reading the file…"):
            file = take()
    except UnifiedNNError as error:
        st.session_state[f"{key}-refusal"] = error
        st.rerun()
    st.session_state.pop(f"{key}-refusal", None)
    st.toast(f"{wording.plain(file.filename)} is in the library. SHA-256 {file.sha256[:12]}…", icon=":material/check:")
    return file


@cache
def _component() -> Any:
    files = (Path(__file__).with_name(name) for name in ("transfer.js", "uploader.js"))
    script = "\n".join(file.read_text(encoding="utf-8") for file in files)
    return st.components.v2.component("unifiednn_uploader", js=script, isolate_styles=False)
