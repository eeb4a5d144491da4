"""The last steps before a training: the check of a spec, what it found, and its submission. For Build and Submit."""

import json
from collections.abc import Sequence
from typing import Any

import streamlit as st

from pages._ui import actions, charts, drafts, fixes, frame, predictions
from unifiednn_core.base.errors import BadInput, Finding, UnifiedNNError
from unifiednn_core.base.units import memory_text
from unifiednn_core.preflight.report import CheckReport
from unifiednn_core.spec.run import Mode, RunSpec
from unifiednn_core.views import markup, wording
from unifiednn_core.views.placement import device_rows, plans
from unifiednn_core.views.techniques import checked_text

SECTION = "part-check"
"""Id of the heading of the check."""
REPORT, _TOLD, _LOOKED_UP = "report", "told", "report-looked-up"


def told(spec: RunSpec, document: drafts.Document) -> tuple[bool, drafts.Document | None]:
    """Draw what the last attempt to start this spec found.

    Returns whether to start anyway, and the draft as a fix changes it.
    """
    known, findings = st.session_state.get(_TOLD, (None, ()))
    if known != spec:
        return False, None
    wrong = sum(one.severity == "error" for one in findings)
    with st.container(border=True, key="warned"):
        counts = [wording.count_text(wrong, "error")] * (wrong > 0)
        counts += [wording.count_text(len(findings) - wrong, "warning")] * (len(findings) > wrong)
        aside = "It cannot start like this" if wrong else "The run can start, but read this first"
        st.html(markup.section("Not started yet", f"{', '.join(counts)}. {aside}"))
        changed = fixes.draw(findings, document, key="told")
        if wrong:
            return False, changed
        with st.container(horizontal=True, horizontal_alignment="right"):
            return st.button("Start anyway", key="start-anyway", icon=":material/play_arrow:"), changed


def start(spec: RunSpec, baselines: Sequence[Mode] = (), *, anyway: bool, **options: Any) -> str | None:
    """Submit a run; returns its id, or None if it is refused. `told` shows why, and warnings before they count."""

    def on_warnings(findings: Sequence[Finding]) -> None:
        if findings and not anyway:
            raise BadInput(findings)

    for entry in (_TOLD, _LOOKED_UP):
        st.session_state.pop(entry, None)
    try:
        with actions.checking() as tell:
            return frame.service().runs.submit(
                spec, baselines=baselines, on_progress=tell, on_warnings=on_warnings, **options
            )
    except BadInput as error:
        st.session_state[_TOLD] = (spec, error.findings)
        st.rerun()
    except UnifiedNNError as error:
        actions.show_error(error)
    return None


def check(
    spec: RunSpec | None, document: drafts.Document, command: str = "unifiednn train spec.json"
) -> drafts.Document | None:
    """Draw the check of a spec, if there is one, and the `command` that does the same in a terminal.

    Returns the draft as a fix changes it.
    """
    known = checked(spec)
    with st.container(horizontal=True, vertical_alignment="center"):
        st.html(markup.section("Check", check_words(known), place=SECTION))
        pressed = st.button("Check", key="check", icon=":material/fact_check:", disabled=spec is None)
    if spec is None:
        return None
    if pressed:
        try:
            with actions.checking() as tell:
                known = frame.service().runs.check(spec, on_progress=tell)
            st.session_state[REPORT] = (spec, known)
            st.rerun()  # the heading above was drawn without it
        except UnifiedNNError as error:
            actions.show_error(error)
    changed = None
    if known is not None:
        changed = _draw_report(known, spec, document)
    elif REPORT in st.session_state:
        st.html(markup.faint("The draft has changed since the last check."))
    with st.expander("Preview the command and the spec", icon=":material/terminal:"):
        text, icon, label = spec.to_json(), ":material/download:", "Download spec.json"
        st.code(command, language="bash")
        st.download_button(label, text, "spec.json", "application/json", "download-spec", on_click="ignore", icon=icon)
        st.code(json.dumps(json.loads(text), indent=2), language="json", height=320)
    return changed


def about(submodel: str) -> tuple[Finding, ...]:
    """What the last check or attempt to start found about one sub-model."""
    report = st.session_state.get(REPORT, (None, None))[1]
    findings = (*st.session_state.get(_TOLD, (None, ()))[1], *(() if report is None else report.findings))
    return tuple(dict.fromkeys(one for one in findings if one.field.startswith(f"submodels.{submodel}.")))


def saving(submodel: str) -> str:
    """What the last check found about the techniques of a sub-model; empty if it found nothing."""
    report: CheckReport | None = st.session_state.get(REPORT, (None, None))[1]
    found = None if report is None else report.submodels.get(submodel)
    return "" if found is None else checked_text(found)


def checked(spec: RunSpec | None) -> CheckReport | None:
    """The report of this spec, if it was checked: here, or by an equal check that is kept."""
    if spec is None:
        return None
    checked: RunSpec | None
    report: CheckReport | None
    checked, report = st.session_state.get(REPORT, (None, None))
    if checked != spec:
        if st.session_state.get(_LOOKED_UP) == spec:
            return None
        st.session_state[_LOOKED_UP], report = spec, frame.service().runs.checked(spec)
        if report is not None:
            st.session_state[REPORT] = (spec, report)
    return report


def check_words(known: CheckReport | None) -> str:
    """What is known of the check, in a few words: "checked 1 min ago, valid"."""
    if known is None:
        return "tries a few samples of each sub-model"
    wrong = sum(one.severity == "error" for one in known.findings)
    warned = len(known.findings) - wrong
    if wrong:
        return f"checked, {wording.count_text(wrong, 'error')}"
    when = frame.ago(known.at_s) if known.at_s is not None else "just now"
    if warned:
        warnings = wording.count_text(warned, "warning")
        return f"checked {when}, valid with {warnings}"
    return f"checked {when}, valid"


def _draw_report(report: CheckReport, spec: RunSpec, document: drafts.Document) -> drafts.Document | None:
    changed, (told_about, _) = None, st.session_state.get(_TOLD, (None, ()))
    if told_about != spec:  # else they stand above already
        changed = fixes.draw(report.findings, document, key="report")
    if not report.findings:
        st.html(markup.notice("green", "check", "Ready", "This run can start."))
    table = (
        {"Sub-model": s.name, "Format": s.format, "Weights": s.parameters, "Size": memory_text(s.weights_bytes)}
        | {"Input": markup.shape(s.input_shape or ()), "Training": s.samples, "Test": s.test_samples}
        | {"Classes": s.classes, "Steps per epoch": s.steps_per_epoch}
        for s in report.submodels.values()
    )
    caption = wording.count_text(len(report.submodels), "sub-model")
    st.html(markup.table(caption, table, {"Sub-model": markup.bold}, right={"Size"}))
    if report.prediction is not None:
        numbers = {submodel.name: place for place, submodel in enumerate(spec.submodels)}
        st.html(markup.section("Memory", "predicted, with the paper's equations"))
        st.html(markup.strip(predictions.facts(report.prediction, spec.policy.name)))
        st.html(predictions.tables(report.prediction, spec.policy.name, numbers))
    if rows := device_rows(report.submodels):
        st.html(markup.section("Several devices", "where operators run, and what that needs"))
        sizes = {"Peak", "Limit", "Weights", "Work"}
        caption = wording.count_text(len(rows), "device")
        st.html(markup.table(caption, rows, {"Sub-model": markup.bold}, right=sizes))
        charts.of_check(plans(report.submodels))
    if measured := {name: text for name, one in report.submodels.items() if (text := checked_text(one))}:
        st.html(markup.section("Techniques", "measured with and without them"))
        lines = "".join(f"<li>{markup.bold(name)}: {markup.text(text)}</li>" for name, text in measured.items())
        st.html(f'<ul class="u-small">{lines}</ul>')
    return changed
