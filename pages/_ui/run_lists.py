"""Lists of runs, one line each: with their state, or with the baselines that they have."""

from collections.abc import Iterable, Sequence

import streamlit as st

from pages._ui import actions, arms, frame
from unifiednn_core.base.units import duration_text
from unifiednn_core.spec.lifecycle import State
from unifiednn_core.views import attention, markup, wording
from unifiednn_core.views.runs import RunView

NAME_WIDTH_PX, ACTIONS_WIDTH_PX = 220, 80
NO_HYBRID = "No hybrid to compare yet. Try the demo, or build one."


def draw_runs(runs: Iterable[RunView], *, key: str, heads: bool = False) -> None:
    """Draw one line for each run, with `heads` above them; a queued one shows its position and can be stopped."""
    with st.container(key=f"rows-{key}"):
        if heads:
            with st.container(horizontal=True, vertical_alignment="center", key=f"row-{key}-head"):
                st.html(markup.faint("Run"), width=NAME_WIDTH_PX)
                names = ("State", "How", "Sub-models", "Time", "When")
                st.html(markup.cells("u-brief u-head", map(markup.text, names)))
                st.space(ACTIONS_WIDTH_PX)
        for run in runs:
            with st.container(horizontal=True, vertical_alignment="center", key=f"row-{key}-{run.run_id}"):
                _line(run, actions.RUN_PAGE, arms.badge(run) or markup.faint(arms.way_text(run)))
                if run.state is not State.QUEUED:
                    st.space(ACTIONS_WIDTH_PX)  # so that the columns of all lists align
                    continue
                icons = f"icons-{key}-{run.run_id}"
                with st.container(horizontal=True, key=icons, width=ACTIONS_WIDTH_PX, wrap=False):
                    actions.state_buttons(run.run_id, run.name, arms.fitting(run).actions, look="icon")


def draw_hybrids(runs: Sequence[RunView]) -> None:
    """Draw one line for each hybrid with its baselines; without any, say what to do."""
    hybrids = [run for run in runs if not arms.is_baseline(run)]
    if not hybrids:
        actions.empty_page("Nothing to compare yet", NO_HYBRID, "demo-compare")
        return
    with st.container(key="rows-compare"):
        for run in hybrids:
            equal = [other for other in runs if run.fingerprint and other.fingerprint == run.fingerprint]
            with st.container(horizontal=True, vertical_alignment="center", key=f"row-compare-{run.run_id}"):
                _line(run, actions.COMPARE_PAGE, markup.faint(arms.baselines_text(arms.newest(equal))))


def _line(run: RunView, page: str, way: str) -> None:
    """Draw the link to a run and its line; `way` is HTML already."""
    st.page_link(page, label=wording.plain(run.name), query_params={"run": run.run_id}, width=NAME_WIDTH_PX)
    if run.state is State.QUEUED:
        figure = f"position {run.queue_position}" if run.queue_position else "waiting"
        figure += f", for {run.waits_for.rstrip('.')}" if run.waits_for else ""
        moment = f"submitted {frame.ago(run.created_at_s)}"
    else:
        figure = "-" if run.elapsed_s is None else duration_text(run.elapsed_s)
        moment = frame.ago(run.ended_at_s or run.started_at_s or run.created_at_s)
    count = wording.count_text(len(run.submodels), "sub-model")
    if why := attention.why_failed(run):
        way += f'<span class="u-under u-clip u-why" title="{markup.text(why)}">{markup.text(why)}</span>'
    cells = (markup.state_badge(run.state), way, count, markup.text(figure), markup.faint(moment))
    st.html(markup.cells("u-brief", cells))
