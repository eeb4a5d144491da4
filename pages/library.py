"""Library: models, data sets, checkpoints and trained models of this installation."""

from collections.abc import Sequence

import streamlit as st

from pages._ui import actions, drafts, file_pick, frame, preview, submodels, uploads
from unifiednn_core.base.units import memory_text
from unifiednn_core.views import markup, wording
from unifiednn_core.views.runs import FileView, TrainedView

EMPTY = {
    "model": "Add a model above, or try the demo, which brings its own.",
    "data set": "Add a data set above, or try the demo, which brings its own.",
    "checkpoint": "Download a checkpoint from the page of a run and add it above to continue its training here.",
}


def main() -> None:
    """Draw the three tabs."""
    frame.page("Library")
    files, trained = frame.service().library.files(), frame.service().runs.trained()
    st.html(markup.title("Library", markup.note("Each file is stored once, by its content.")))
    tabs = ("Models", "Data", "Checkpoints", "Trained models")
    models, data, checkpoints, done = st.tabs(tabs, key="library-tabs")
    with models:
        uploads.prepare_panel()
        _files([file for file in files if file.kind in ("model", "weights")], "model", uploads.MODEL_SUFFIXES)
    with data:
        held = [file for file in files if file.kind == "data"]
        _files(held, "data set", uploads.DATA_SUFFIXES)
        if held:
            _look(held)
        _tokenizers([file for file in files if file.kind == "tokenizer"])
    with checkpoints:
        _files([file for file in files if file.kind == "checkpoint"], "checkpoint", uploads.CHECKPOINT_SUFFIXES)
    with done:
        _trained(trained)


def _files(files: Sequence[FileView], thing: str, suffixes: tuple[str, ...]) -> None:
    key = thing.replace(" ", "-")
    imported = uploads.upload(f"Add a {thing} ({', '.join('.' + s for s in suffixes)})", suffixes, key=f"library-{key}")
    if imported is not None:
        st.rerun()
    if not files:
        demo = "" if thing == "checkpoint" else f"demo-{key}"
        actions.empty_page(f"No {thing}s yet", EMPTY[thing], demo, "secondary")
        return
    table = markup.frame(
        {"File": file.filename, "Kind": file.kind, "Format": file.format}
        | {"Facts": " · ".join(file_pick.facts(file)) or "-", "Size": file.size_bytes}
        | {"Added": frame.ago(file.created_at_s), "SHA-256": file.sha256[:12]}
        for file in files
    )
    looks: markup.Looks = {
        "File": markup.bold,
        "Facts": _facts,
        "Size": memory_text,
        "Added": markup.faint,
        "SHA-256": markup.mono,
    }
    st.html(markup.table(wording.count_text(len(files), thing), table, looks))


def _facts(words: str) -> str:
    return f'<span class="u-faint u-nowrap">{markup.text(words)}</span>'


def _look(files: Sequence[FileView]) -> None:
    """Draw the preview of one data set, and the button that splits it."""
    known, labels = {drafts.reference(file): file for file in files}, file_pick.labels(files)
    with st.container(horizontal=True, vertical_alignment="bottom", key="look"):
        chosen = st.selectbox("Look into", list(known), format_func=labels.__getitem__, key="look-pick", width=420)
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


def _trained(trained: Sequence[TrainedView]) -> None:
    if not trained:
        text = "Each sub-model can be downloaded as soon as it completes, while the others still train."
        st.html(markup.empty("No trained models yet", text))
        return
    with st.container(key="rows-trained"):
        for model in trained:
            with st.container(horizontal=True, vertical_alignment="center", key=f"row-{model.run_id}-{model.submodel}"):
                cells = (
                    markup.bold(model.submodel),
                    markup.faint(model.run_name),
                    f"test {wording.accuracy_text(model.test_accuracy)}",
                    memory_text(model.size_bytes),
                    markup.faint(frame.ago(model.created_at_s)),
                )
                st.html(markup.cells("u-brief u-trained", cells))
                with st.container(horizontal=True, width="content", key=f"icons-{model.run_id}-{model.submodel}"):
                    submodels.download_button(model.run_id, model.submodel, model.filename, model.size_bytes)


if __name__ == "__main__":
    main()
