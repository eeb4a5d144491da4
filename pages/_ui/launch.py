"""The last steps before a training: the check of a spec, its warnings, and its submission. For Build and Submit."""

import json
from collections.abc import Sequence
from typing import Any

import streamlit as st

from pages._ui import actions, frame, predictions
from unifiednn_core.base.errors import BadInput, Finding, UnifiedNNError
from unifiednn_core.base.units import memory_text
from unifiednn_core.preflight.report import CheckReport
from unifiednn_core.spec.run import Mode, RunSpec
from unifiednn_core.views import markup, wording

REPORT, _WARNED = "report", "warned"


def warnings(spec: RunSpec) -> bool:
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


def start(spec: RunSpec, baselines: Sequence[Mode] = (), *, anyway: bool, **options: Any) -> str | None:
    """Submit a run; returns its id, or None if it is refused. If there are warnings, they are shown first."""

    def on_warnings(findings: Sequence[Finding]) -> None:
        if findings and not anyway:
            st.session_state[_WARNED] = (spec, tuple(findings))
            raise BadInput(findings)

    st.session_state.pop(_WARNED, None)
    run_id = actions.try_submit(spec, baselines, on_warnings=on_warnings, **options)
    if run_id is None and _WARNED in st.session_state:
        st.rerun()
    return run_id


def check(spec: RunSpec | None, command: str = "unifiednn train spec.json") -> None:
    """Draw the check of a spec, if there is one, and the `command` that does the same in a terminal."""
    with st.container(horizontal=True, vertical_alignment="center"):
        st.html(markup.section("Check", "tries a few samples of each sub-model"))
        pressed = st.button("Check", key="check", icon=":material/fact_check:", disabled=spec is None)
    if spec is None:
        return
    if pressed:
        try:
            with actions.checking() as tell:
                st.session_state[REPORT] = (spec, frame.service().runs.check(spec, on_progress=tell))
        except UnifiedNNError as error:
            actions.show_error(error)
    checked, report = st.session_state.get(REPORT, (None, None))
    if report is not None and checked == spec:
        _draw_report(report, spec)
    elif report is not None:
        st.html(markup.faint("The draft has changed since the last check."))
    with st.expander("Preview the command and the spec", icon=":material/terminal:"):
        text, icon = spec.to_json(), ":material/download:"
        st.code(command, language="bash")
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
