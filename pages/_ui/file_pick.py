"""Choosing a file of the library, uploading one into it, and splitting a data set."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import streamlit as st

from pages._ui import actions, background, drafts, frame, uploads
from unifiednn_core.base.errors import UnifiedNNError
from unifiednn_core.base.visible import visible
from unifiednn_core.spec.run_query import KeptQuery
from unifiednn_core.views import markup, wording
from unifiednn_core.views.library import KeptModel
from unifiednn_core.views.runs import FileView

SHA_LENGTH, LONG_SHA_LENGTH = 4, 12
KEPT: tuple[Literal["model", "checkpoint"], ...] = ("model", "checkpoint")
OFFERED = 200
"""Of each, the newest: the browser gets the names of all that can be chosen."""
SPLIT_HELP = "Writes two new data sets and keeps this one. The same share and seed always give the same two files."
BY_CLASS_HELP = "Takes the same share of each class for the test, so both parts have the same balance."


def pick(
    label: str,
    files: Sequence[FileView],
    chosen: str | None,
    suffixes: tuple[str, ...],
    *,
    key: str,
    nothing: str = "",
    why_not: Callable[[FileView], str] = lambda file: "",
) -> str:
    """Draw a choice among files of the library, and an upload into it; returns the reference, or "" for none.

    `nothing` is the label of "none", if none is a valid choice. Files for which `why_not` gives a reason come last and
    say it.
    """
    reasons = {drafts.reference(file): why_not(file) for file in files}
    unfit = frozenset((ref, why) for ref, why in reasons.items() if why)
    names, known = labels(files), {drafts.reference(file): file for file in files}
    names = {ref: f"{text} · {reasons[ref]}" if reasons[ref] else text for ref, text in names.items()}
    wanted = _wanted(chosen, key)
    options = ([""] if nothing else []) + sorted(names, key=lambda ref: bool(reasons[ref]))
    if chosen and chosen not in options:  # a path of a spec that was loaded, or a file that is gone
        options.append(chosen)
    index = options.index(wanted) if wanted in options else (0 if nothing else None)

    def title(ref: str) -> str:
        return visible(names.get(ref, ref.rsplit("/", 1)[-1])) or nothing

    # Streamlit finds the chosen option by its label, and labels say what does not fit: other labels, another field.
    widget = f"{key}-pick-{wanted}" + (f"-{hash(unfit)}" if unfit else "")
    if (last := st.session_state.get(f"{key}-widget")) != widget:
        st.session_state[f"{key}-widget"] = widget
        picked_before = st.session_state.get(last) if last and f"-pick-{wanted}" in last else None
        index = options.index(picked_before) if picked_before in options else index
    picked = st.selectbox(label, options, index, title, widget, placeholder="choose from the library")
    if picked in known:
        file_facts = " · ".join((*facts(known[picked]), f"SHA-256 {known[picked].sha256[:LONG_SHA_LENGTH]}…"))
        st.html(markup.small(file_facts))
        if reasons[picked]:
            st.html(markup.quiet("warning", f"This does not fit: {reasons[picked]}."))
    field, status = f"{key}-upload", st.container()
    refused = uploads.refused(field) and not uploads.reads(field)
    # Another key after each file: what the browser still says of the old popover must not open the new one.
    opened = f"{key}-popover-{uploads.rounds(field)}-{refused}"
    st.session_state.setdefault(opened, refused)  # the reason is inside
    words = f"{label}: {', '.join(f'.{s}' for s in suffixes)}"
    with st.popover("Upload", icon=":material/upload:", type="tertiary", key=opened, on_change="rerun"):
        file = uploads.upload(words, suffixes, key=field, status=status)
    if file is not None:
        choose(file, key=key)
        st.rerun()
    return picked if picked in options else ""


def current(key: str, chosen: str | None) -> str | None:
    """What the choice of this key held when it was drawn last; `chosen` before that."""
    widget = st.session_state.get(f"{key}-widget")
    held = st.session_state.get(widget) if widget else None
    return _wanted(chosen, key) if held is None else str(held)


def _wanted(chosen: str | None, key: str) -> str | None:
    held: str | None = st.session_state.get(f"{key}-uploaded", chosen)
    return held


def of_runs(*, key: str) -> None:
    """Draw a choice among what runs of this server keep; the chosen one is copied into the library, and chosen."""
    library = frame.service().library
    found = (one for what in KEPT for one in library.kept(KeptQuery(what, rows=OFFERED, counted=False)).models)
    newest = sorted(found, key=lambda one: one.at_s, reverse=True)
    kept = {f"{one.run_id}/{one.submodel}/{one.what}": one for one in newest}
    reading: background.Underway[FileView] | None = st.session_state.get(f"{key}-kept{uploads.READING}")
    if reading is not None and not reading.done:
        background.draw(reading, "The server reads the file. Everything else goes on.")
    elif reading is not None:
        del st.session_state[f"{key}-kept{uploads.READING}"]
        with actions.showing_errors():
            choose(reading.result(), key=key)
            st.rerun()
    if not kept:
        return
    labels = {name: visible(_kept_label(one)) for name, one in kept.items()}
    twice = Counter(labels.values())
    title = {name: text if twice[text] == 1 else f"{text} · {name}" for name, text in labels.items()}.__getitem__
    times = st.session_state.get(f"{key}-kept-times", 0)
    label, hint = "Trained models and checkpoints of runs", "or from a run of this server"
    picked = st.selectbox(
        label, list(kept), None, title, f"{key}-kept-{times}", placeholder=hint, label_visibility="collapsed"
    )
    if picked is None or reading is not None:
        return
    one = kept[picked]
    taking = background.Underway.of(lambda: library.take(one.run_id, one.submodel, one.what))
    st.session_state[f"{key}-kept-times"] = times + 1
    st.session_state[f"{key}-kept{uploads.READING}"] = taking
    background.end_within([taking], uploads.GRACE_S)
    st.rerun()


def _kept_label(one: KeptModel) -> str:
    what = "trained model" if one.what == "model" else f"checkpoint, step {one.step}"
    return " · ".join((one.submodel, one.run_name, what, frame.moment(one.at_s)))


def choose(file: FileView, *, key: str) -> None:
    """Choose a file for this key, from its next drawing on."""
    st.session_state[f"{key}-uploaded"] = drafts.reference(file)


def labels(files: Sequence[FileView]) -> dict[str, str]:
    """One label per reference: `train.npz · 700 samples · 22 Nov 05:42 · fe23`.

    Streamlit finds the chosen option by its label, so no two are equal, and none changes while the list is open: they
    hold the time of the import instead of its age.
    """
    short = {drafts.reference(file): _label(file, SHA_LENGTH) for file in files}
    twice = Counter(short.values())
    return {
        ref: text if twice[text] == 1 else _label(file, len(file.sha256))
        for (ref, text), file in zip(short.items(), files, strict=True)
    }


def short_names(files: Sequence[FileView], given: Mapping[str, str]) -> dict[str, str]:
    """File name per reference, with the start of its hash if several files have that name; `given` names win."""
    plain = {drafts.reference(file): file.filename for file in files} | dict(given)
    count = Counter(plain.values())
    return {
        ref: name if count[name] == 1 else f"{name} ({ref.removeprefix('sha256:')[:SHA_LENGTH]})"
        for ref, name in plain.items()
    }


def facts(file: FileView) -> tuple[str, ...]:
    """Facts about a file, as short texts; empty without any."""
    known = file.facts
    found = (
        _figure(known, "parameters", "weight") or _figure(known, "elements", "value"),
        _figure(known, "samples", "sample"),
        markup.shape(sides) if isinstance(sides := known.get("input_shape"), list | tuple) and sides else "",
        f"of {known['submodel']}" if isinstance(known.get("submodel"), str) else "",
        f"step {known['step']:,}" if isinstance(known.get("step"), int) else "",
        str(known.get("optimizer") or ""),
        str(known.get("input_dtype") or ""),
        _figure(known, "classes", "class"),
        f"targets {known['target_dtype']}" if known.get("classes") is None and known.get("target_dtype") else "",
    )
    return tuple(text for text in found if text)


def _label(file: FileView, sha_length: int) -> str:
    words = (file.filename, *facts(file)[:2], frame.moment(file.created_at_s), file.sha256[:sha_length])
    return visible(" · ".join(words))


def _figure(known: Mapping[str, object], entry: str, thing: str) -> str:
    count = known.get(entry)
    return wording.count_text(count, thing) if isinstance(count, int) else ""


def draw_split(
    file: FileView, *, key: str = "split", label: str = "Split into training and test"
) -> tuple[FileView, FileView] | None:
    """Draw the form behind a button; returns the parts, to train on and to test with, once they are in the library."""
    with (
        st.popover(label, icon=":material/call_split:", help=SPLIT_HELP),
        st.form(f"{key}-{file.sha256[:12]}", border=False),
    ):
        share = st.slider("Test share", 5, 50, 20, step=5, format="%d %%")
        seed = st.number_input("Seed", min_value=0, max_value=2**31 - 1, value=0, step=1)
        classes = file.facts.get("classes") is not None and not file.facts.get("target_shape")
        by_class = st.checkbox("By class", value=classes, disabled=not classes, help=BY_CLASS_HELP)
        if not st.form_submit_button("Split", type="primary"):
            return None
        plan: dict[str, Any] = {"test_share": share / 100, "seed": int(seed), "by_class": by_class}
        try:
            with st.spinner("Writing the two parts…"):
                train, test = frame.service().library.split_data(file.sha256, **plan)
        except UnifiedNNError as error:
            actions.show_error(error)
            return None
    st.toast(f"Imported {wording.plain(train.filename)} and {wording.plain(test.filename)}.", icon=":material/check:")
    return train, test
