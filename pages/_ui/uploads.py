"""Uploading a file into the library, importing one from the server, and how to prepare a model."""

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from pages._ui import actions, background, frame, import_form
from unifiednn_core.base.errors import BadInput, IntakeFailed, NotFound, UnifiedNNError
from unifiednn_core.base.units import memory_text
from unifiednn_core.base.visible import visible
from unifiednn_core.data.values import AS_STORED, ImportOptions
from unifiednn_core.views import markup, wording
from unifiednn_core.views.runs import FileView

MODEL_SUFFIXES = ("pt2", "pt", "pth", "ckpt", "safetensors", "json")
DATA_SUFFIXES = ("pt", "safetensors", "npz", "csv", "tsv", "jsonl", "parquet", "txt", "zip", "tar", "gz")
START_SUFFIXES = ("safetensors", "pt", "pth", "ckpt")
CHECKPOINT_SUFFIXES = ("safetensors",)
TOKENIZER_SUFFIXES = ("json",)
ALL_SUFFIXES = tuple(dict.fromkeys((*MODEL_SUFFIXES, *DATA_SUFFIXES)))
KINDS = {
    ALL_SUFFIXES: ("model", "weights", "data", "checkpoint"),
    MODEL_SUFFIXES: ("model", "weights"),
    DATA_SUFFIXES: ("data",),
    START_SUFFIXES: ("checkpoint", "weights"),
    CHECKPOINT_SUFFIXES: ("checkpoint",),
    TOKENIZER_SUFFIXES: ("tokenizer",),
}
HINT = "Drop a file here, or choose one. Any size; an interrupted upload resumes."
DROP_HINT = "Each model becomes a sub-model, on the data that fit it. A spec.json fills the draft."
COMMAND = "unifiednn pack model.py:Net --input 1,28,28"
OPTIONS = (
    ("--input 1,28,28", "shape of one sample, without the batch"),
    ("--dtype int64", "the inputs are ids"),
    ("--arg width=16", "an argument of Net; repeatable"),
    ("--free 1", "sequences of any length: size 1 of a sample varies"),
)
_PACK = "**Pack it on your own machine**, where torch and UnifiedNN are installed:"
_CHECKED = (
    "This exports your code for any batch size and compares training steps with it, bit for bit. If it cannot, it "
    "names the line and what to write instead. Add `Net.pt2`; edit its hyper-parameters in `Net.json`, and paste them "
    "into a sub-model."
)
_READY = (
    "**No preparation needed:** a `.pt2` of `torch.export`; weights of a network that is known by name; "
    "`torch.save(network)` of torch's own layers; a `config.json` of transformers."
)
_BACK = "**What comes back:** the trained network in the format of the upload, and its weights as `.safetensors`."
WORDS = {
    "starting": "Looking at the file…",
    "waiting": "The connection broke. The upload continues by itself when the server answers.",
    "paused": "Paused.",
    "sent": "Sent. The server reads the file now…",
    "of": "{sent} of {size}",
    "left": "{time} left",
    "upload": "Upload of {name}",
    "pause": "Pause",
    "resume": "Resume",
    "cancel": "Cancel",
}
"""Texts by the name that the script knows."""
_WIDTH_PX = 520
GRACE_S = 0.4
"""A file that is read within this needs no line of its own."""
READING = "-reading"
"""End of the key of a file that is read in the background."""


def upload(label: str, suffixes: tuple[str, ...], *, key: str, status: DeltaGenerator | None = None) -> FileView | None:
    """Draw a place to drop a file on; returns the imported file once, in the first run after its import.

    The browser sends the bytes to the upload routes, not through this page. The file is read in the background, and
    `status` (without one, this place) says so meanwhile: the page stays usable.
    """
    # The refusal of the last file stays until the next one.
    if (refusal := st.session_state.get(f"{key}-refusal")) is not None:
        actions.show_error(
            BadInput(import_form.in_words(refusal.findings)) if isinstance(refusal, BadInput) else refusal
        )
    library, data = frame.service().library, suffixes == DATA_SUFFIXES
    again, zone = _asked_again(key, data), st.container()
    options = _options(key, refused=refusal is not None) if data else lambda: AS_STORED
    with zone:
        arrived = sent_upload(label, suffixes, key=key)
        picked = _picked_on_server(label, suffixes, key=key)
    if sent := arrived or again:
        last = st.session_state.get(f"{key}-last")
        if last not in (None, sent):
            with suppress(NotFound):  # else it was refused, and kept to be read with other options
                library.drop_upload(last)
        st.session_state[f"{key}-last"] = sent
        _read(lambda wish: library.finish_upload(sent, wish, keep_refused=data), options, key)
    elif picked:
        _read(lambda wish: library.import_server_file(picked, KINDS[suffixes], wish), options, key)
    with status or st.container():
        return _imported(key)


def refused(key: str) -> bool:
    """Whether the last file of this key was refused."""
    return f"{key}-refusal" in st.session_state


def reads(key: str) -> bool:
    """Whether a file of this key is read now."""
    return f"{key}{READING}" in st.session_state


def rounds(key: str) -> int:
    """How many files of this key were read."""
    return int(st.session_state.get(f"{key}-round", 0))


def _read(take: Callable[[ImportOptions], FileView], options: Callable[[], ImportOptions], key: str) -> None:
    """Read a file in the background; `_imported` tells of its end."""
    st.session_state[f"{key}-round"] = rounds(key) + 1
    try:
        wish = options()
    except BadInput as error:
        st.session_state[f"{key}-refusal"] = error
        st.rerun()
    reading = background.Underway.of(lambda: take(wish))
    st.session_state[f"{key}{READING}"] = reading
    if not background.end_within([reading], GRACE_S):
        st.rerun()  # a popover that holds this closes


def _imported(key: str) -> FileView | None:
    """The file that was read, once; draws a line while it is read, which ends by itself."""
    reading: background.Underway[FileView] | None = st.session_state.get(f"{key}{READING}")
    if reading is None:
        return None
    if not reading.done:
        background.draw(reading, "The server reads the file. Everything else goes on.")
        return None
    del st.session_state[f"{key}{READING}"]
    try:
        file = reading.result()
    except UnifiedNNError as error:
        st.session_state[f"{key}-refusal"] = error
        st.rerun()
    st.session_state.pop(f"{key}-refusal", None)
    st.session_state.pop(f"{key}-last", None)
    st.toast(f"Imported {wording.plain(file.filename)}.", icon=":material/check:")
    return file


def _options(key: str, *, refused: bool) -> Callable[[], ImportOptions]:
    """Draw the import options; the result returns them, or raises `BadInput` if they are not valid."""
    try:
        found = import_form.options(frame.service().library.files(), key=key, opened=refused)
    except BadInput as error:
        actions.show_error(error)
        return partial(_raise, error)
    return lambda: found


def _raise(error: BadInput) -> ImportOptions:
    raise error


def sent_upload(label: str, suffixes: tuple[str, ...], *, key: str) -> str | None:
    """Draw the component; returns the id of an upload that has arrived, once."""
    data = _data(label, HINT, suffixes, key) | {"round": rounds(key)}
    sent = _component()(data=data, key=key, on_sent_change=lambda: None).sent
    return sent if isinstance(sent, str) else None


def _asked_again(key: str, data: bool) -> str | None:
    """The upload to read again: after a failure that was not the fault of the file, or data with other options."""
    refusal = st.session_state.get(f"{key}-refusal")
    readable = isinstance(refusal, IntakeFailed) or (data and isinstance(refusal, BadInput))
    if f"{key}-last" not in st.session_state or not readable:
        return None
    sent = str(st.session_state[f"{key}-last"])
    with st.container(horizontal=True):
        label = "Try again" if isinstance(refusal, IntakeFailed) else "Read it again with the options below"
        again = st.button(label, key=f"{key}-again", icon=":material/refresh:")
        if st.button("Discard it", key=f"{key}-discard", icon=":material/delete:"):
            with suppress(NotFound):
                frame.service().library.drop_upload(sent)
            for entry in ("refusal", "last"):
                del st.session_state[f"{key}-{entry}"]
            st.rerun()
    return sent if again else None


def _picked_on_server(label: str, suffixes: tuple[str, ...], *, key: str) -> str | None:
    files = {file.name: file for file in frame.service().library.server_files(suffixes)}
    if not files:
        return None
    # Streamlit finds the chosen option by its label, and two folders of one name hold files of one name.
    count = Counter((file.shown, file.size_bytes) for file in files.values())
    labels = {
        name: visible(
            f"{file.shown if count[file.shown, file.size_bytes] == 1 else name}, {memory_text(file.size_bytes)}"
        )
        for name, file in files.items()
    }
    with st.container(horizontal=True, vertical_alignment="bottom", key=f"{key}-server"):
        title, where = labels.__getitem__, "or from a folder on the server"
        name = st.selectbox(
            f"{label}, {where}",
            list(files),
            None,
            title,
            f"{key}-server-file",
            placeholder=where,
            label_visibility="collapsed",
        )
        taken = st.button("Import", key=f"{key}-server-take", icon=":material/input:", disabled=name is None)
    return name if taken else None


def sent_batch(label: str, *, key: str) -> tuple[list[str], int]:
    """Draw a place for several files at once; returns the uploads that have arrived, and how many are on their way."""
    data = _data(label, DROP_HINT, ALL_SUFFIXES, key) | {"round": 0, "several": True}
    state = _component()(data=data, key=key, on_batch_change=lambda: None).batch
    return (list(state["sent"]), int(state["open"])) if isinstance(state, Mapping) else ([], 0)


def _data(label: str, hint: str, suffixes: tuple[str, ...], key: str) -> dict[str, object]:
    """What the component needs to know."""
    accepted = {"suffixes": list(suffixes), "kinds": list(KINDS[suffixes])}
    return {"key": key, "label": label, "hint": hint, "address": "files/uploads", **accepted, "words": WORDS}


@cache
def _component() -> Any:
    files = (Path(__file__).with_name(name) for name in ("transfer.js", "uploader.js"))
    script = "\n".join(file.read_text(encoding="utf-8") for file in files)
    return st.components.v2.component("unifiednn_uploader", js=script, isolate_styles=False)


def prepare_panel() -> None:
    """Draw a button that opens the text."""
    with (
        st.popover("Prepare your model", icon=":material/package_2:", type="tertiary", key="prepare", width="content"),
        st.container(width=_WIDTH_PX),
    ):
        st.markdown(_PACK)
        st.code(COMMAND, language=None)
        options = ({"Option": option, "Meaning": meaning} for option, meaning in OPTIONS)
        st.html(markup.table("", options, {"Option": markup.mono}))
        for text in (_CHECKED, _READY, _BACK):
            st.markdown(text)
