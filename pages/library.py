"""Library: models, data sets and trained models that this installation holds."""

from collections.abc import Sequence

import streamlit as st

from pages._ui import actions, frame, markup, prepare, preview, split_form, submodels, uploads, wording
from unifiednn_core.units import memory_text
from unifiednn_core.views.runs import FileView, TrainedView


def main() -> None:
    """Draw the three tabs."""
    frame.page("Library")
    files, trained = frame.service().files(), frame.service().trained()
    st.html(markup.title("Library", markup.note("Every file is kept once, by its content.")))
    tabs = st.tabs(["Models", "Data", "Checkpoints", "Trained models"], key="library-tabs")
    models, data, checkpoints, done = tabs
    with models:
        prepare.panel()
        _files([file for file in files if file.kind in ("model", "weights")], "model", uploads.MODEL_SUFFIXES)
    with data:
        held = [file for file in files if file.kind == "data"]
        _files(held, "data set", uploads.DATA_SUFFIXES)
        if held:
            _look(held)
    with checkpoints:
        _files([file for file in files if file.kind == "checkpoint"], "checkpoint", uploads.CHECKPOINT_SUFFIXES)
    with done:
        _trained(trained)


def _files(files: Sequence[FileView], thing: str, suffixes: tuple[str, ...]) -> None:
    key = thing.replace(" ", "-")
    taken_in = uploads.upload(f"Add a {thing} ({', '.join('.' + s for s in suffixes)})", suffixes, key=f"library-{key}")
    if taken_in is not None:
        st.rerun()
    if not files:
        st.html(markup.empty(f"No {thing} yet", wording.EMPTY_LIBRARY[thing]))
        if thing == "checkpoint":
            return
        with st.container(horizontal=True, horizontal_alignment="center"):
            actions.demo_button(f"demo-{key}", primary=False)
        return
    heads = ("File", "Kind", "Format", "Facts", "Size", "Added", "SHA-256")
    rows = [
        (
            markup.bold(file.filename),
            markup.text(file.kind),
            markup.text(file.format),
            facts(file),
            memory_text(file.size_bytes),
            markup.faint(frame.ago(file.created_at_s)),
            f'<span class="u-mono">{markup.text(file.sha256[:12])}</span>',
        )
        for file in files
    ]
    st.html(markup.table(wording.count_text(len(files), thing), heads, rows, numeric=frozenset({4})))


def _look(files: Sequence[FileView]) -> None:
    """Draw one data set: what it is like, and how to part it."""
    st.html(preview.STYLE)
    names = {file.sha256: file for file in files}
    with st.container(horizontal=True, vertical_alignment="bottom", key="look"):
        chosen = st.selectbox(
            "Look into",
            list(names),
            format_func=lambda sha256: f"{names[sha256].filename} · {sha256[:6]}",
            key="look-pick",
            width=420,
        )
        if split_form.draw(names[chosen]) is not None:
            st.rerun()
    st.html(preview.panel(names[chosen]))


def facts(file: FileView) -> str:
    """What is known of a file, on one line of HTML."""
    known, parts = file.facts, []
    if isinstance(weights := known.get("parameters", known.get("elements")), int):
        parts.append(f"{weights:,} weights")
    if isinstance(submodel := known.get("submodel"), str):
        parts.append(f"of {markup.text(submodel)}")
    if isinstance(step := known.get("step"), int):
        parts.append(f"step {step:,}")
    if isinstance(optimizer := known.get("optimizer"), str):
        parts.append(markup.text(optimizer))
    if isinstance(samples := known.get("samples"), int):
        parts.append(wording.count_text(samples, "sample"))
    if isinstance(shape := known.get("input_shape"), list | tuple) and shape:
        parts.append(f"inputs {markup.shape(shape)}")
    if isinstance(dtype := known.get("input_dtype"), str):
        parts.append(markup.text(dtype))
    if isinstance(classes := known.get("classes"), int):
        parts.append(f"{classes} classes")
    if file.kind == "data" and known.get("classes") is None and isinstance(kind := known.get("target_dtype"), str):
        parts.append(f"targets {markup.text(kind)}")
    return f'<span class="u-faint u-nowrap">{" · ".join(parts) or "-"}</span>'


def _trained(trained: Sequence[TrainedView]) -> None:
    if not trained:
        text = "A sub-model can be downloaded as soon as it is done, while the others still train."
        st.html(markup.empty("No trained model yet", text))
        return
    with st.container(key="rows-trained"):
        for model in trained:
            with st.container(horizontal=True, vertical_alignment="center", key=f"row-{model.run_id}-{model.submodel}"):
                st.html(_line(model))
                with st.container(horizontal=True, width="content", key=f"icons-{model.run_id}-{model.submodel}"):
                    submodels.download_button(model.run_id, model.submodel, model.filename, model.size_bytes)


def _line(model: TrainedView) -> str:
    cells = (
        markup.bold(model.submodel),
        markup.faint(model.run_name),
        markup.text(f"test {wording.accuracy_text(model.test_accuracy)}"),
        markup.text(memory_text(model.size_bytes)),
        markup.faint(frame.ago(model.created_at_s)),
    )
    return '<div class="u-brief u-trained">' + "".join(f"<span>{cell}</span>" for cell in cells) + "</div>"


if __name__ == "__main__":
    main()
