"""Build: assemble a hybrid, check it, start it. The draft `?draft=ID` holds all entries, so a refresh loses nothing."""

from typing import Any, Literal
from urllib.parse import quote

import streamlit as st

from pages._ui import actions, drafts, frame, launch, run_form, submodel_form, uploads
from unifiednn_core.base.errors import NotFound
from unifiednn_core.spec.run import RunSpec
from unifiednn_core.views import markup, wording

_DRAFT, _EDITOR, _CONFLICT = "draft", "editor", "conflict"

CONFLICT = (
    "Another tab saved this draft after this tab read it. Your changes here are not saved until you overwrite it."
)


def main() -> None:
    """Draw the page, and save the draft after each change."""
    frame.page("Build")
    draft = _load()
    spec, findings = drafts.spec_or_findings(draft)
    editing = _EDITOR in st.session_state
    missing = findings[0].message if findings else ""
    _head(draft, *((None, "Save or cancel the sub-model that is open.") if editing else (spec, missing)))
    if _CONFLICT in st.session_state:
        _conflict(draft)
    left, right = st.columns([3, 2], gap="large")
    with left:
        changed = _submodels(draft)
    with right:
        changed |= run_form.settings(draft)
    launch.check(spec)
    if changed != draft:
        _save(changed)
    if changed != draft or editing != (_EDITOR in st.session_state):
        st.rerun()  # the head above was drawn without it


def _load() -> drafts.Document:
    draft_id = st.query_params.get("draft")
    held_id, held = st.session_state.get(_DRAFT, (None, None))
    if held is not None and held_id == draft_id:
        return dict(held)
    try:
        draft = frame.service().library.draft(draft_id) if draft_id else drafts.new()
    except NotFound:
        st.html(markup.notice("orange", "warning", "No such draft", "It was submitted or deleted. This is a new one."))
        draft_id, draft = None, drafts.new()
        st.query_params.pop("draft", None)
    st.session_state[_DRAFT] = (draft_id, draft)
    for entry in (_EDITOR, launch.REPORT, _CONFLICT):
        st.session_state.pop(entry, None)
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
    st.session_state[_DRAFT] = (draft_id, draft)


def _conflict(draft: drafts.Document) -> None:
    st.html(markup.notice("orange", "tab", "Changed in another tab", CONFLICT))
    draft_id = st.query_params["draft"]
    with st.container(horizontal=True):
        if st.button("Overwrite", key="conflict-overwrite", icon=":material/save:"):
            del st.session_state[_CONFLICT]
            frame.service().library.save_draft(draft, draft_id)
            st.rerun()
        # A link reloads the page, so that its fields hold the values of the other tab.
        address = f"build?draft={quote(draft_id)}"
        st.html(f'<a class="u-download" href="{address}" target="_self">Load the other version</a>', width="content")


def _head(draft: drafts.Document, spec: RunSpec | None, missing: str) -> None:
    with st.container(horizontal=True, vertical_alignment="center"):
        st.html(markup.title("Build a hybrid", markup.note("" if spec else f"Not ready to start: {missing}")))
        actions.demo_button("demo-build", "secondary")
        icon, tip = ":material/play_arrow:", wording.plain(missing) if missing else None
        pressed = st.button("Start training", key="start", type="primary", icon=icon, disabled=spec is None, help=tip)
    if spec is not None:
        anyway = launch.warnings(spec)
        if pressed or anyway:
            _start(draft, spec, anyway=anyway)


def _start(draft: drafts.Document, spec: RunSpec, *, anyway: bool) -> None:
    """Submit the run and open its page; if there are warnings, show them first."""
    draft_id = st.query_params.get("draft")
    modes, first = run_form.plan(draft)
    run_id = launch.start(spec, modes, anyway=anyway, baselines_first=first)
    if run_id is not None:
        if draft_id:
            frame.service().library.delete_draft(draft_id)
        st.session_state.pop(_DRAFT, None)
        actions.open_run(run_id)


def _submodels(draft: drafts.Document) -> drafts.Document:
    editing = _EDITOR in st.session_state
    st.html(markup.section("Sub-models", "in order of arrival"))
    changed, edit = submodel_form.draw_rows(draft, locked=editing)
    if edit is not None:
        _open_editor(edit)
        return changed
    listed = drafts.submodels(draft)
    if not listed:
        st.html(markup.small("Add the first network, or try the demo."))
    if editing:
        return _editor(changed)
    with st.container(horizontal=True, key="adding"):
        kind: Literal["primary", "secondary"] = "secondary" if listed else "primary"
        if st.button("Add sub-model", key="add", icon=":material/add:", type=kind):
            _open_editor(None)
        uploads.prepare_panel()
    return changed


def _editor(draft: drafts.Document) -> drafts.Document:
    at, number = st.session_state[_EDITOR]
    listed, key = drafts.submodels(draft), f"sub{number}"
    seed: dict[str, Any] = listed[at] if at is not None and at < len(listed) else {}
    taken = [s["name"] for place, s in enumerate(listed) if place != at and "name" in s]
    with st.container(border=True, key="editor"):
        st.html(markup.section(f"Edit {seed['name']}" if seed.get("name") else "New sub-model"))
        entered = submodel_form.submodel_form(seed, taken, key=key)
        with st.container(horizontal=True, horizontal_alignment="right"):
            cancel = st.button("Cancel", key="editor-cancel")
            save = st.button("Save sub-model", key="editor-save", type="primary", icon=":material/check:")
    found = submodel_form.findings_of(entered, taken, key=key) if save else ()
    if found:
        submodel_form.tell(found, key=key)
        st.rerun()
    if cancel or save:
        del st.session_state[_EDITOR]
    if cancel:
        st.rerun()
    return drafts.put(draft, at, entered) if save else draft


def _open_editor(at: int | None) -> None:
    # A fresh number gives fresh widgets, without the values of the sub-model edited before.
    number = st.session_state["editors"] = st.session_state.get("editors", 0) + 1
    st.session_state[_EDITOR] = (at, number)


if __name__ == "__main__":
    main()
