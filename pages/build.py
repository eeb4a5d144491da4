"""Build: assemble a hybrid, check it, start it.

The draft `?draft=ID` holds all entries, those of the open form too, so that neither a refresh nor a visit elsewhere
loses any.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Literal, NamedTuple

import streamlit as st

from pages._ui import (
    actions,
    build_steps,
    draft_list,
    drafts,
    drop,
    dropped,
    fixes,
    focus,
    forecast_panel,
    frame,
    launch,
    run_form,
    submodel_form,
    uploads,
)
from unifiednn_core.base.errors import NotFound, UnifiedNNError
from unifiednn_core.base.units import MIB
from unifiednn_core.spec.run import RunSpec, document_kind
from unifiednn_core.views import markup, wording

FIRST = ".st-key-add button"
TEST_SHARE, MOST_SPLIT_BYTES = 0.2, 512 * MIB
"""A larger data set is not split unasked."""
_DRAFT, _EDITOR, _CONFLICT = "draft", "editor", "conflict"


class Editor(NamedTuple):
    """The open form of a sub-model."""

    at: int | None
    """Place of the sub-model; None for a new one."""
    number: int
    """Unique in a session: a fresh number gives fresh widgets, without the values of the sub-model edited before."""
    seed: drafts.Document
    """What it began with."""


def main() -> None:
    """Draw the page, and save the draft after each change."""
    frame.page("Build")
    draft = _load()
    spec, findings = drafts.spec_or_findings(draft)
    editing, asking = (entry in st.session_state for entry in (_EDITOR, _CONFLICT))
    steps = build_steps.steps(draft, findings, launch.checked(spec), editing=editing)
    mended = _head(draft, None if editing else spec, steps)
    if not editing and any(one.fix is not None for one in findings):
        mended = fixes.draw(findings, draft, key="draft") or mended
    if _CONFLICT in st.session_state:
        _conflict(draft)
    left, right = st.columns([3, 2], gap="large")
    with left:
        changed = _submodels(draft)
    with right:
        changed = {**changed, **run_form.settings(draft)}
    forecast_panel.draw(spec)
    mended = launch.check(spec, {} if editing else draft) or mended  # with an open form there is nothing to mend
    if mended is not None:
        _save(mended)
        st.rerun()
    if changed != draft:
        _save(changed)
    focus.draw()
    draft_list.draw(key="build", without=st.session_state[_DRAFT][0])
    here = drafts.closed(changed) == drafts.closed(draft) and asking == (_CONFLICT in st.session_state)
    if not here or editing != (_EDITOR in st.session_state):
        st.rerun()  # the head above was drawn without it


def _load() -> drafts.Document:
    asked, (held_id, held) = st.query_params.get("draft"), st.session_state.get(_DRAFT, (None, None))
    # A field that is always drawn: without its value, another page was drawn in between.
    stays = run_form.name_key() in st.session_state or _CONFLICT in st.session_state
    if held is not None and stays and asked == held_id:
        return dict(held)
    editor: Editor | None = st.session_state.pop(_EDITOR, None)
    draft_id, draft = draft_list.load("build")
    draft = draft or drafts.new()
    for entry in (launch.REPORT, _CONFLICT):
        st.session_state.pop(entry, None)
    if drafts.EDITING in draft:  # with the same number, if it is still the same form
        opened = draft[drafts.EDITING]
        _open_editor(opened["at"], opened["entered"], editor.number if editor and draft_id == held_id else None)
    st.session_state[_DRAFT] = (draft_id, draft)
    return dict(draft)


def _save(draft: drafts.Document) -> None:
    """Save a draft, unless another tab has saved it since this one read it: then ask first."""
    draft_id, held = st.session_state[_DRAFT]
    library = frame.service().library
    if _CONFLICT not in st.session_state:
        try:
            changed = draft_id and drafts.revision(library.draft(draft_id)) != drafts.revision(held)
        except NotFound:  # submitted or deleted; it is saved again with these entries
            changed = False
        if changed:
            st.session_state[_CONFLICT] = True
        else:
            st.query_params["draft"] = draft_id = library.save_draft(draft, draft_id)
            draft_list.remember("build", draft_id)
    st.session_state[_DRAFT] = (draft_id, draft)


def _conflict(draft: drafts.Document) -> None:
    draft_id = st.query_params["draft"]
    if draft_list.conflict("build", draft_id):
        del st.session_state[_CONFLICT]
        frame.service().library.save_draft(draft, draft_id)
        st.rerun()


def _head(
    draft: drafts.Document, spec: RunSpec | None, steps: Sequence[build_steps.BuildStep]
) -> drafts.Document | None:
    """Draw title and steps, and what the last attempt to start found; returns the draft as a fix changes it."""
    with st.container(horizontal=True, vertical_alignment="center"):
        st.html(markup.title("Build a hybrid"))
        if st.session_state[_DRAFT][0]:
            draft_list.link("build", "New draft", draft_list.NEW)
        actions.demo_button("demo-build", "secondary")
        missing = next((step.words for step in steps if not step.done), "")
        icon, tip = ":material/play_arrow:", None if spec else wording.plain(missing)
        label, off = "Start training", spec is None
        pressed = st.button(label, key="start", type="primary", icon=icon, disabled=off, help=tip)
    st.html(build_steps.as_html(steps))
    if spec is None:
        return None
    anyway, mended = launch.told(spec, draft)
    if pressed or anyway:
        _start(draft, spec, anyway=anyway)
    return mended


def _start(draft: drafts.Document, spec: RunSpec, *, anyway: bool) -> None:
    """Submit the run and open its page; if there are warnings, show them first."""
    draft_id, _ = st.session_state[_DRAFT]
    modes, first = run_form.plan(draft)
    run_id = launch.start(spec, modes, anyway=anyway, baselines_first=first)
    if run_id is not None:
        draft_list.finish("build", draft_id, run_id)
        st.session_state.pop(_DRAFT, None)
        actions.open_run(run_id)


def _submodels(draft: drafts.Document) -> drafts.Document:
    editing = _EDITOR in st.session_state
    st.html(markup.section("Sub-models", place=build_steps.SUBMODELS))
    changed, edit = submodel_form.draw_rows(draft, locked=editing)
    if edit is not None:
        seed = drafts.submodels(draft)[edit]
        _open_editor(edit, seed)
        name, key = seed.get("name", ""), f"sub{st.session_state[_EDITOR].number}"
        submodel_form.tell(launch.about(name), key=key, saving=launch.saving(name))
        return changed
    listed = drafts.submodels(draft)
    if absent := dropped.missing(draft, frame.service().library.files()):
        st.html(markup.findings(absent))
    if not listed:
        st.html(markup.small("Add the first network, or try the demo."))
    if editing:
        return _editor(changed)
    found = drop.draw(key="drop")
    if found:
        return _with_dropped(changed, found)
    with st.container(horizontal=True, key="adding"):
        kind: Literal["primary", "secondary"] = "secondary" if listed else "primary"
        if st.button("Add sub-model", key="add", icon=":material/add:", type=kind):
            _open_editor(None, {})
        uploads.prepare_panel()
    return changed


def _with_dropped(draft: drafts.Document, found: list[drop.Dropped]) -> drafts.Document:
    """The draft with what was dropped: first a spec, then the files that it may name, then hyper-parameters."""
    library = frame.service().library
    held, names = library.files(), library.architectures()
    specs = [one for one in found if one.document is not None and document_kind(one.document) == "spec"]
    hypers = [one for one in found if one.document is not None and one not in specs]
    for one in specs:
        draft = dropped.with_document(draft, one.filename, one.document or {})
    files = [one.file for one in found if one.file is not None]
    if specs:  # its files belong to it; none becomes a sub-model of its own
        files = [file for file in files if file.kind == "data"]
    draft = _with_tests(dropped.with_files(draft, files, held, names))
    for one in hypers:
        draft = dropped.with_document(draft, one.filename, one.document or {})
    if specs:  # the settings of the run, too
        _save(draft)
        run_form.restart()
        st.rerun()
    return draft


def _with_tests(draft: drafts.Document) -> drafts.Document:
    """Guess a fifth of the data as test data of each sub-model whose data are a guess, too, and have no test data."""
    parts: dict[str, dict[str, str]] = {}
    for at, one in enumerate(drafts.submodels(draft)):
        if drafts.is_guess(one, "train_data") and not one.get("test_data"):
            train = one["train_data"]
            if train not in parts:
                parts[train] = {}
                with suppress(UnifiedNNError):  # too few samples, say; the check asks for test data
                    parts[train] = fixes.parts_of(train, TEST_SHARE, MOST_SPLIT_BYTES)
            draft = drafts.put(draft, at, drafts.with_guesses(one, parts[train]))
    return draft


def _editor(draft: drafts.Document) -> drafts.Document:
    """Draw the open form; returns the draft with what it holds, as soon as it holds an entry."""
    at, number, seed = st.session_state[_EDITOR]
    listed, key = drafts.submodels(draft), f"sub{number}"
    taken = [s["name"] for place, s in enumerate(listed) if place != at and "name" in s]
    with st.container(border=True, key="editor"):
        old = listed[at].get("name") if at is not None and at < len(listed) else None
        st.html(markup.section(f"Edit {old}" if old else "New sub-model"))
        ranked = run_form.by_priority(draft.get("policy") or {})
        entered = submodel_form.submodel_form(seed, taken, key=key, ranked=ranked)
        with st.container(horizontal=True, horizontal_alignment="right"):
            cancel = st.button("Cancel", key="editor-cancel")
            save = st.button("Save sub-model", key="editor-save", type="primary", icon=":material/check:")
    found = submodel_form.findings_of(entered, taken, key=key) if save else ()
    if found:
        submodel_form.tell(found, key=key)
        st.rerun()
    if cancel or save:
        del st.session_state[_EDITOR]
        focus.to(f".st-key-edit-{len(listed) if at is None else at} button" if save or at is not None else FIRST)
        return drafts.closed(drafts.put(draft, at, entered) if save else draft)
    if drafts.EDITING not in draft and entered == st.session_state.setdefault(f"{key}-first", entered):
        return draft
    return drafts.edited(draft, at, entered)


def _open_editor(at: int | None, seed: drafts.Document, number: int | None = None) -> None:
    """Open a form; with the `number` of one that was left, what it still reads in the background arrives there."""
    if number is None:
        number = st.session_state["editors"] = st.session_state.get("editors", 0) + 1
    submodel_form.restart(f"sub{number}")
    focus.to(".st-key-editor input")
    st.session_state[_EDITOR] = Editor(at, number, seed)


if __name__ == "__main__":
    main()
