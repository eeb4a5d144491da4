"""Library: models, data sets, checkpoints and trained models of this installation."""

from collections.abc import Sequence
from typing import Literal

import streamlit as st

from pages._ui import actions, drafts, file_pick, frame, preview, shelves, uploads
from unifiednn_core.spec.run_query import KeptQuery
from unifiednn_core.views import markup
from unifiednn_core.views.library import ShelvedFile
from unifiednn_core.views.runs import FileView

TABS = ("Models", "Data", "Checkpoints", "Trained models")
ADD = {
    "model": "Add a model ({suffixes})",
    "data set": "Add a data set ({suffixes})",
    "checkpoint": "Add a checkpoint ({suffixes})",
}
NONE = {"model": "No models yet", "data set": "No data sets yet", "checkpoint": "No checkpoints yet"}
EMPTY = {
    "model": "Add a model above, or try the demo, which brings its own.",
    "data set": "Add a data set above, or try the demo, which brings its own.",
    "checkpoint": "Add one above to continue its training here. Those of runs on this server are listed below.",
}
STORED = "Each file is stored once, by its content."
NO_TRAINED = "Each sub-model can be downloaded as soon as it completes, while the others still train."


def main() -> None:
    """Draw the four tabs."""
    frame.page("Library")
    library = frame.service().library
    held = library.shelf()
    actions.show_refusals()
    shelves.draw_dialogs(held)
    st.html(markup.title("Library", markup.note(STORED)) + shelves.quota(library.quota()))
    models, data, checkpoints, done = st.tabs(list(TABS), key="library-tabs")
    with models:
        uploads.prepare_panel()
        _files([one for one in held if one.file.kind in ("model", "weights")], "model", uploads.MODEL_SUFFIXES)
    with data:
        sets = [one for one in held if one.file.kind == "data"]
        _files(sets, "data set", uploads.DATA_SUFFIXES)
        if sets:
            _look([one.file for one in sets])
        _tokenizers([one.file for one in held if one.file.kind == "tokenizer"])
    with checkpoints:
        added = [one for one in held if one.file.kind == "checkpoint"]
        _files(added, "checkpoint", uploads.CHECKPOINT_SUFFIXES)
        if _any("checkpoint"):
            st.html(markup.section("Of runs on this server", "the newest of each sub-model"))
            shelves.kept("checkpoint", "checkpoint", key="kept-checkpoints")
    with done:
        if _any("model"):
            shelves.kept("model", "trained model", key="trained")
        else:
            st.html(markup.empty("No trained models yet", NO_TRAINED))


def _any(what: Literal["model", "checkpoint"]) -> bool:
    return bool(frame.service().library.kept(KeptQuery(what, rows=1, counted=False)).models)


def _files(files: Sequence[ShelvedFile], thing: str, suffixes: tuple[str, ...]) -> None:
    key = thing.replace(" ", "-")
    label = ADD[thing].format(suffixes=", ".join(f".{suffix}" for suffix in suffixes))
    imported = uploads.upload(label, suffixes, key=f"library-{key}")
    if imported is not None:
        st.rerun()
    if not files:
        demo = "" if thing == "checkpoint" else f"demo-{key}"
        actions.empty_page(NONE[thing], EMPTY[thing], demo, "secondary")
        return
    shelves.files(files, thing, key=f"shelf-{key}")


def _look(files: Sequence[FileView]) -> None:
    """Draw the preview of one data set, and the button that splits it."""
    known, labels = {drafts.reference(file): file for file in files}, file_pick.labels(files)
    with st.container(horizontal=True, vertical_alignment="bottom", key="look"):
        chosen = st.selectbox("Preview", list(known), format_func=labels.__getitem__, key="look-pick", width=420)
        if file_pick.draw_split(known[chosen]) is not None:
            st.rerun()
    st.html(preview.panel(known[chosen]))


def _tokenizers(files: Sequence[FileView]) -> None:
    """Draw the tokenizers of texts, folded away, with a place for another one."""
    with st.expander("Tokenizers of texts", icon=":material/text_fields:", key="tokenizers"):
        imported = uploads.upload("Add a tokenizer.json", uploads.TOKENIZER_SUFFIXES, key="library-tokenizer")
        if imported is not None:
            st.rerun()
        for file in files:
            st.html(markup.bold(file.filename) + " " + markup.faint(" · ".join(file_pick.facts(file))))


if __name__ == "__main__":
    main()
