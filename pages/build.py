"""Build: put a hybrid together, check it, start it. `?draft=ID` holds what was entered, so a refresh loses nothing."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import streamlit as st

from pages._ui import (
    actions,
    baseline_form,
    drafts,
    frame,
    markup,
    policy_form,
    predictions,
    prepare,
    submodel_form,
    submodel_list,
    wording,
)
from unifiednn_core.errors import BadInput, Finding, NotFound, UnifiedNNError
from unifiednn_core.spec import RunSpec
from unifiednn_core.units import memory_text

if TYPE_CHECKING:
    from unifiednn_core.service import CheckReport

_DRAFT, _EDITOR, _REPORT, _WARNED = "draft", "editor", "report", "warned"


def main() -> None:
    """Draw the page and keep the draft where anything was changed."""
    frame.page("Build")
    draft = _load()
    spec, findings = drafts.spec_or_findings(draft)
    if _EDITOR in st.session_state:
        _head(draft, None, "Save or cancel the sub-model that is open.")
    else:
        _head(draft, spec, findings[0].message if findings else "")
    left, right = st.columns([5, 3], gap="large")
    with left:
        changed = _submodels(draft)
    with right:
        changed |= policy_form.settings(draft)
    _check(spec)
    if changed != draft:
        _save(changed)
        st.rerun()


def _load() -> drafts.Document:
    draft_id = st.query_params.get("draft")
    held_id, held = st.session_state.get(_DRAFT, (None, None))
    if held is not None and held_id == draft_id:
        return dict(held)
    try:
        draft = frame.service().draft(draft_id) if draft_id else drafts.new()
    except NotFound:
        st.html(markup.notice("orange", "warning", "No such draft", "It was submitted or deleted.", "This one is new."))
        draft_id, draft = None, drafts.new()
        st.query_params.pop("draft", None)
    st.session_state[_DRAFT] = (draft_id, draft)
    _close_editor()
    st.session_state.pop(_REPORT, None)
    return dict(draft)


def _save(draft: drafts.Document) -> None:
    draft_id = frame.service().save_draft(draft, st.query_params.get("draft"))
    st.query_params["draft"] = draft_id
    st.session_state[_DRAFT] = (draft_id, draft)


def _head(draft: drafts.Document, spec: RunSpec | None, missing: str) -> None:
    with st.container(horizontal=True, vertical_alignment="center"):
        st.html(markup.title("Build a hybrid", markup.note("" if spec else f"Not ready to start: {missing}")))
        actions.demo_button("demo-build", primary=False)
        pressed = st.button(
            "Start training",
            key="start",
            type="primary",
            icon=":material/play_arrow:",
            disabled=spec is None,
            help=missing or None,
        )
    if spec is not None:
        anyway = _warnings(spec)
        if pressed or anyway:
            _start(draft, spec, anyway=anyway)


def _warnings(spec: RunSpec) -> bool:
    """Draw what the last start of this spec was warned of; returns whether it is to start all the same."""
    warned, findings = st.session_state.get(_WARNED, (None, ()))
    if warned != spec:
        return False
    with st.container(border=True, key="warned"):
        count = wording.count_text(len(findings), "warning")
        st.html(markup.section("Not started yet", f"{count}: the run can start, but look at this first"))
        st.html(markup.findings(findings))
        with st.container(horizontal=True, horizontal_alignment="right"):
            return st.button("Start anyway", key="start-anyway", icon=":material/play_arrow:")


def _start(draft: drafts.Document, spec: RunSpec, *, anyway: bool) -> None:
    """Hand the run in and go to its page; with warnings only where they were seen."""

    def told(findings: Sequence[Finding]) -> None:
        if findings and not anyway:
            st.session_state[_WARNED] = (spec, tuple(findings))
            raise BadInput(findings)

    draft_id = st.query_params.get("draft")
    modes, first = baseline_form.plan(draft)
    st.session_state.pop(_WARNED, None)
    run_id = actions.try_submit(spec, modes, baselines_first=first, told=told)
    if run_id is not None:
        if draft_id:
            frame.service().delete_draft(draft_id)
        st.session_state.pop(_DRAFT, None)
        actions.open_run(run_id)
    if _WARNED in st.session_state:
        st.rerun()


def _submodels(draft: drafts.Document) -> drafts.Document:
    listed = drafts.submodels(draft)
    st.html(markup.section("Sub-models", "in order of arrival"))
    changed, edit = submodel_list.draw(draft, locked=_EDITOR in st.session_state)
    if edit is not None:
        _open_editor(edit)
    if not listed:
        st.html(markup.small("Add the first network, or try the demo."))
    if _EDITOR not in st.session_state:
        with st.container(horizontal=True, key="adding"):
            add = st.button(
                "Add sub-model", key="add", icon=":material/add:", type="secondary" if listed else "primary"
            )
            prepare.panel()
        if add:
            _open_editor(None)
            st.rerun()
        return changed
    return _editor(changed)


def _editor(draft: drafts.Document) -> drafts.Document:
    at, number = st.session_state[_EDITOR]
    listed = drafts.submodels(draft)
    seed: dict[str, Any] = listed[at] if at is not None and at < len(listed) else {}
    taken = [s["name"] for place, s in enumerate(listed) if place != at and "name" in s]
    with st.container(border=True, key="editor"):
        st.html(markup.section(f"Edit {seed['name']}" if seed.get("name") else "New sub-model"))
        entered = submodel_form.submodel_form(seed, taken, key=f"sub{number}")
        with st.container(horizontal=True, horizontal_alignment="right"):
            cancel = st.button("Cancel", key="editor-cancel")
            save = st.button("Save sub-model", key="editor-save", type="primary", icon=":material/check:")
        if cancel:
            _close_editor()
            st.rerun()
        if save:
            found = submodel_form.findings_of(entered, taken, key=f"sub{number}")
            if not found:
                _close_editor()
                return drafts.put(draft, at, entered)
            submodel_form.tell(found, key=f"sub{number}")
            st.rerun()
    return draft


def _open_editor(at: int | None) -> None:
    # A fresh number gives fresh widgets, so nothing of the sub-model edited before shines through.
    number = st.session_state["editors"] = st.session_state.get("editors", 0) + 1
    st.session_state[_EDITOR] = (at, number)


def _close_editor() -> None:
    st.session_state.pop(_EDITOR, None)


def _check(spec: RunSpec | None) -> None:
    with st.container(horizontal=True, vertical_alignment="center"):
        st.html(markup.section("Check", "models, data and hyper-parameters are tried out with one batch"))
        pressed = st.button("Check", key="check", icon=":material/fact_check:", disabled=spec is None)
    if spec is None:
        return
    if pressed:
        try:
            with st.spinner("Trying one batch of each sub-model…"):
                st.session_state[_REPORT] = (spec, frame.service().check(spec))
        except UnifiedNNError as error:
            actions.show_error(error)
    checked, report = st.session_state.get(_REPORT, (None, None))
    if report is not None and checked == spec:
        ready = markup.notice("green", "check", "Ready", "Nothing stands in the way of this run.")
        st.html(markup.findings(report.findings) or ready)
        st.html(_facts(report))
        _prediction(report, spec)
    elif report is not None:
        st.html(markup.faint("Something was changed since the last check."))
    with st.expander("Preview the command and the spec", icon=":material/terminal:"):
        st.code("unifiednn train spec.json", language="bash")
        st.download_button(
            "Download spec.json",
            spec.to_json(),
            file_name="spec.json",
            mime="application/json",
            on_click="ignore",
            key="download-spec",
            icon=":material/download:",
        )
        st.code(json.dumps(json.loads(spec.to_json()), indent=2), language="json", height=320)


def _prediction(report: "CheckReport", spec: RunSpec) -> None:
    if report.prediction is None:
        return
    numbers = {submodel.name: place for place, submodel in enumerate(spec.submodels)}
    st.html(markup.section("Memory", "as predicted, beside what the paper's equations say"))
    st.html(markup.strip(predictions.facts(report.prediction, spec.policy.name)))
    st.html(predictions.submodels_table(report.prediction, numbers))
    st.html(predictions.policies_table(report.prediction, spec.policy.name))


def _facts(report: "CheckReport") -> str:
    heads = ("Sub-model", "Format", "Weights", "Size", "Input", "Training", "Test", "Classes", "Steps per epoch")
    rows = [
        (
            markup.bold(s.name),
            markup.text(s.format),
            f"{s.parameters:,}",
            memory_text(s.weights_bytes),
            markup.shape(s.input_shape or ()),
            f"{s.samples:,}",
            "-" if s.test_samples is None else f"{s.test_samples:,}",
            "-" if s.classes is None else str(s.classes),
            f"{s.steps_per_epoch:,}",
        )
        for s in report.submodels.values()
    ]
    return markup.table(wording.count_text(len(rows), "sub-model"), heads, rows, numeric=frozenset({2, 3, 5, 6, 7, 8}))


if __name__ == "__main__":
    main()
