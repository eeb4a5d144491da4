"""Lists of runs, one line each, the name being a link to the run's page."""

from collections.abc import Iterable

import streamlit as st

from pages._ui import actions, arms, frame, markup, wording
from unifiednn_core.lifecycle import State
from unifiednn_core.units import duration_text
from unifiednn_core.views.runs import RunView

NAME_WIDTH_PX, ACTIONS_WIDTH_PX = 220, 80


def draw_rows(runs: Iterable[RunView], *, key: str) -> None:
    """Draw one line for each run; a queued one shows its position and can be stopped."""
    with st.container(key=f"rows-{key}"):
        for run in runs:
            with st.container(horizontal=True, vertical_alignment="center", key=f"row-{key}-{run.run_id}"):
                label = wording.plain(run.name)
                st.page_link(actions.RUN_PAGE, label=label, query_params={"run": run.run_id}, width=NAME_WIDTH_PX)
                st.html(_line(run))
                if run.state is State.QUEUED:
                    with st.container(
                        horizontal=True, key=f"icons-{key}-{run.run_id}", width=ACTIONS_WIDTH_PX, wrap=False
                    ):
                        actions.state_buttons(run.run_id, run.name, arms.fitting(run).actions, icons=True)
                else:
                    st.space(ACTIONS_WIDTH_PX)  # so that the columns of all lists align


def _line(run: RunView) -> str:
    if run.state is State.QUEUED:
        figure = f"position {run.queue_position}" if run.queue_position else "waiting"
        figure = f"{figure}, for {run.waits_for}" if run.waits_for else figure
        moment = f"handed in {frame.ago(run.created_at_s)}"
    else:
        figure = "-" if run.elapsed_s is None else duration_text(run.elapsed_s)
        moment = frame.ago(run.ended_at_s or run.started_at_s or run.created_at_s)
    return markup.brief(run.state, arms.badge(run) or markup.faint(run.policy_text), len(run.submodels), figure, moment)
