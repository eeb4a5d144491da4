"""The line on a run's page that says which baselines there are, and has the buttons for those that are missing."""

from collections.abc import Mapping
from functools import partial

import streamlit as st

from pages._ui import actions, arm_words, arms, frame, markup
from unifiednn_core.lifecycle import ENDED, State
from unifiednn_core.units import percent_text
from unifiednn_core.views.comparison import BASELINES, Mode
from unifiednn_core.views.runs import RunView


def draw(view: RunView, found: Mapping[Mode, RunView]) -> bool:
    """Draw the line of a hybrid; returns whether the baselines' curves are wanted in its charts."""
    with st.container(horizontal=True, vertical_alignment="center", key="section-arms"):
        st.html(markup.section("Against plain PyTorch") + _states(view, found), width="content")
        st.space("stretch")
        shown = st.toggle(
            "Baselines in the charts",
            value=True,
            key=f"arms-shown-{view.run_id}",
            disabled=not found,
            help=arm_words.OVERLAY_HELP,
        )
        missing_buttons(view, found)
        if found and st.button("Compare", key="open-compare", icon=":material/balance:"):
            st.switch_page(actions.COMPARE_PAGE, query_params={"run": view.run_id})
    return bool(shown)


def missing_buttons(view: RunView, found: Mapping[Mode, RunView]) -> None:
    """A button for each kind of baseline that is missing, or that did not come to its end."""
    for mode in BASELINES:
        known = found.get(mode)
        if known is not None and known.state not in arms.USELESS:
            continue
        again = "" if known is None else " again"
        if st.button(
            f"Run {mode}{again}",
            key=f"baseline-{mode}-{view.run_id}",
            icon=":material/playlist_play:",
            help=arm_words.BASELINE_HELP[mode],
        ):
            actions.attempt(partial(frame.service().start_baseline, view.run_id, mode))
            st.rerun()


def _states(view: RunView, found: Mapping[Mode, RunView]) -> str:
    if not found:
        return markup.small(arm_words.NO_BASELINE)
    return f'<div class="u-line u-arms">{"".join(_state(run, view) for run in found.values())}</div>'


def _state(run: RunView, view: RunView) -> str:
    if run.state in ENDED:
        said = f"reused, from {frame.ago(run.ended_at_s)}" if arms.reused(run, view) else frame.ago(run.ended_at_s)
    elif run.state is State.QUEUED:
        said = f"waits for {run.waits_for or 'the device'}"
    else:
        said = percent_text(run.progress)
    state = markup.state_badge(run.state)
    return f'<span class="u-line">{markup.arm_badge(run.mode)}{state}{markup.faint(said)}</span>'
