"""Build: assemble a hybrid, check it, start it. The draft `?draft=ID` holds all entries, so a refresh loses nothing."""

import json
from collections.abc import Sequence
from typing import Any, Literal
from urllib.parse import quote

import streamlit as st

from pages._ui import actions, drafts, frame, predictions, run_form, submodel_form, uploads
from unifiednn_core.base.errors import BadInput, Finding, NotFound, UnifiedNNError
from unifiednn_core.base.units import memory_text
from unifiednn_core.preflight.report import CheckReport
from unifiednn_core.spec.run import RunSpec
from unifiednn_core.views import markup, wording

_DRAFT, _EDITOR, _REPORT, _WARNED, _CONFLICT = "draft", "editor", "report", "warned", "conflict"

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
    _check(spec)
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
    for entry in (_EDITOR, _REPORT, _CONFLICT):
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
        anyway = _warnings(spec)
        if pressed or anyway:
            _start(draft, spec, anyway=anyway)


def _warnings(spec: RunSpec) -> bool:
    """Draw the warnings of the last attempt to start this spec; returns whether to start anyway."""
    warned, findings = st.session_state.get(_WARNED, (None, ()))
    if warned != spec:
        return False
    with st.container(border=True, key="warned"):
        count = wording.count_text(len(findings), "warning")
        st.html(markup.section("Not started yet", f"{count}. The run can start, but read this first"))
        st.html(markup.findings(findings))
        with st.container(horizontal=True, horizontal_alignment="right"):
            return st.button("Start anyway", key="start-anyway", icon=":material/play_arrow:")


def _start(draft: drafts.Document, spec: RunSpec, *, anyway: bool) -> None:
    """Submit the run and open its page; if there are warnings, show them first."""

    def on_warnings(findings: Sequence[Finding]) -> None:
        if findings and not anyway:
            st.session_state[_WARNED] = (spec, tuple(findings))
            raise BadInput(findings)

    draft_id = st.query_params.get("draft")
    modes, first = run_form.plan(draft)
    st.session_state.pop(_WARNED, None)
    run_id = actions.try_submit(spec, modes, baselines_first=first, on_warnings=on_warnings)
    if run_id is not None:
        if draft_id:
            frame.service().library.delete_draft(draft_id)
        st.session_state.pop(_DRAFT, None)
        actions.open_run(run_id)
    if _WARNED in st.session_state:
        st.rerun()


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


def _check(spec: RunSpec | None) -> None:
    with st.container(horizontal=True, vertical_alignment="center"):
        st.html(markup.section("Check", "tries one batch of each sub-model"))
        pressed = st.button("Check", key="check", icon=":material/fact_check:", disabled=spec is None)
    if spec is None:
        return
    if pressed:
        try:
            with st.spinner("Trying one batch of each sub-model…"):
                st.session_state[_REPORT] = (spec, frame.service().runs.check(spec))
        except UnifiedNNError as error:
            actions.show_error(error)
    checked, report = st.session_state.get(_REPORT, (None, None))
    if report is not None and checked == spec:
        _draw_report(report, spec)
    elif report is not None:
        st.html(markup.faint("The draft has changed since the last check."))
    with st.expander("Preview the command and the spec", icon=":material/terminal:"):
        text, icon = spec.to_json(), ":material/download:"
        st.code("unifiednn train spec.json", language="bash")
        st.download_button(
            "Download spec.json", text, "spec.json", "application/json", "download-spec", on_click="ignore", icon=icon
        )
        st.code(json.dumps(json.loads(text), indent=2), language="json", height=320)


def _draw_report(report: CheckReport, spec: RunSpec) -> None:
    ready = markup.notice("green", "check", "Ready", "This run can start.")
    st.html(markup.findings(report.findings) or ready)
    table = markup.frame(
        {"Sub-model": s.name, "Format": s.format, "Weights": s.parameters, "Size": memory_text(s.weights_bytes)}
        | {"Input": markup.shape(s.input_shape or ()), "Training": s.samples, "Test": s.test_samples}
        | {"Classes": s.classes, "Steps per epoch": s.steps_per_epoch}
        for s in report.submodels.values()
    )
    caption = wording.count_text(len(table), "sub-model")
    st.html(markup.table(caption, table, {"Sub-model": markup.bold}, right={"Size"}))
    if report.prediction is not None:
        numbers = {submodel.name: place for place, submodel in enumerate(spec.submodels)}
        st.html(markup.section("Memory", "predicted, with the paper's equations"))
        st.html(markup.strip(predictions.facts(report.prediction, spec.policy.name)))
        st.html(predictions.tables(report.prediction, spec.policy.name, numbers))


if __name__ == "__main__":
    main()
