"""Hybrids with the baselines that they have, one line each; the name leads to the comparison."""

from collections.abc import Sequence

import streamlit as st

from pages._ui import actions, arm_words, arms, frame, markup, wording
from unifiednn_core.units import duration_text
from unifiednn_core.views.comparison import BASELINES
from unifiednn_core.views.runs import RunView

NAME_WIDTH_PX = 220


def draw(runs: Sequence[RunView]) -> None:
    """Draw the list; with no hybrid, what to do."""
    hybrids = [run for run in runs if not arms.is_baseline(run)]
    if not hybrids:
        st.html(markup.empty("Nothing to compare yet", arm_words.NO_HYBRID))
        with st.container(horizontal=True, horizontal_alignment="center"):
            actions.demo_button("demo-compare", primary=True, baselines=BASELINES)
        return
    with st.container(key="rows-compare"):
        for run in hybrids:
            with st.container(horizontal=True, vertical_alignment="center", key=f"row-compare-{run.run_id}"):
                label = wording.plain(run.name)
                st.page_link(actions.COMPARE_PAGE, label=label, query_params={"run": run.run_id}, width=NAME_WIDTH_PX)
                st.html(_line(run, runs))


def _line(run: RunView, runs: Sequence[RunView]) -> str:
    equal = [other for other in runs if run.fingerprint and other.fingerprint == run.fingerprint]
    elapsed = "-" if run.elapsed_s is None else duration_text(run.elapsed_s)
    moment = frame.ago(run.ended_at_s or run.started_at_s or run.created_at_s)
    found = arm_words.baselines_text(arms.newest(equal))
    return markup.brief(run.state, markup.faint(found), len(run.submodels), elapsed, moment)
