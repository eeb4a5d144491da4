"""Runs that belong together: a hybrid and its baselines."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import streamlit as st

from pages._ui import actions, arm_words, frame, markup, signed_in
from unifiednn_core.base.errors import UnifiedNNError
from unifiednn_core.base.units import percent_text
from unifiednn_core.spec.lifecycle import ENDED, Event, State
from unifiednn_core.spec.run import ALL_BASELINES, BASELINES, Mode
from unifiednn_core.views.comparison import Comparison
from unifiednn_core.views.report.words import HOW
from unifiednn_core.views.runs import RunView

USELESS = frozenset({State.FAILED, State.STOPPED, State.INTERRUPTED})
"""A baseline that ended in one of these can be run again."""


def is_baseline(view: RunView) -> bool:
    """Whether a run is a baseline."""
    return view.mode in ALL_BASELINES


def fitting(view: RunView) -> RunView:
    """The run with the actions that fit it: a baseline can only be stopped, as a whole."""
    if not is_baseline(view):
        return view
    parts = tuple(replace(submodel, actions=frozenset()) for submodel in view.submodels)
    return replace(view, actions=view.actions & {Event.STOP}, submodels=parts)


def badge(view: RunView) -> str:
    """Badge of a baseline as HTML; empty for a hybrid."""
    return markup.arm_badge(view.mode, " baseline") if is_baseline(view) else ""


def way_text(view: RunView) -> str:
    """How a run trains: the policy of a hybrid, the processes of a baseline."""
    return HOW[view.mode] if is_baseline(view) else view.policy_text


def newest(runs: Sequence[RunView]) -> dict[Mode, RunView]:
    """The newest run of each kind of baseline; one that ended early only if no other exists."""
    found: dict[Mode, RunView] = {}
    for mode in ALL_BASELINES:
        own = [run for run in runs if run.mode == mode]
        best = next((run for run in own if run.state not in USELESS), own[0] if own else None)
        if best is not None:
            found[mode] = best
    return found


def comparable(run_id: str) -> tuple[RunView, ...]:
    """All runs of equal fingerprint, newest first, without curves; none if the service refuses."""
    try:
        return tuple(frame.service().comparisons.comparable(run_id))
    except UnifiedNNError:
        return ()


def any_lives(runs: Sequence[RunView]) -> bool:
    """Whether one of the runs has not ended."""
    return any(run.state not in ENDED for run in runs)


def with_curves(runs: Sequence[RunView]) -> list[RunView]:
    """Of each kind of baseline the newest run that has trained, with its curves."""
    trained = [run for run in runs if any(submodel.steps_done for submodel in run.submodels)]
    return [observed(run) for run in newest(trained).values()]


def observed(run: RunView) -> RunView:
    """The run with its curves; those of an ended run are read once."""
    if run.state not in ENDED:
        return frame.service().runs.observe(run.run_id)
    person = signed_in.actor()
    return _of_ended(run.run_id, run.ended_at_s, None if person is None else (person.id, person.role))


def comparison(run_id: str) -> Comparison | None:
    """The comparison of a run; None if there is none."""
    try:
        return frame.service().comparisons.comparison(run_id)
    except UnifiedNNError:
        return None


def reused(baseline: RunView, hybrid: RunView) -> bool:
    """Whether a baseline ended before the hybrid was submitted."""
    return baseline.ended_at_s is not None and baseline.ended_at_s <= hybrid.created_at_s


@st.cache_resource(show_spinner=False, max_entries=16)
def _of_ended(run_id: str, ended_at_s: float | None, person: tuple[str, str] | None) -> RunView:
    return frame.service().runs.observe(run_id)


def draw_row(view: RunView, found: Mapping[Mode, RunView]) -> bool:
    """Draw the line of a hybrid; returns whether the baselines' curves are wanted in its charts."""
    with st.container(horizontal=True, vertical_alignment="center", key="section-arms"):
        st.html(markup.section("Against plain PyTorch") + _states(view, found), width="content")
        st.space("stretch")
        if found and st.button("Compare", key="open-compare", icon=":material/balance:"):
            st.switch_page(actions.COMPARE_PAGE, query_params={"run": view.run_id})
        shown = st.toggle(
            "Baselines in the charts",
            value=True,
            key=f"arms-shown-{view.run_id}",
            disabled=not found,
            help=arm_words.OVERLAY_HELP,
        )
        missing_buttons(view, found)
    return bool(shown)


def missing_buttons(view: RunView, found: Mapping[Mode, RunView]) -> None:
    """A button for each kind of baseline, until both have completed.

    One that cannot be used stays, disabled with its reason: a button that moved would get the second of two clicks.
    """
    if all(mode in found and found[mode].state is State.COMPLETED for mode in BASELINES):
        return
    changed = frame.service().comparisons.why_no_baseline(view.run_id)
    for mode in BASELINES:
        reason = arm_words.no_baseline_text(view.state, found[mode].state if mode in found else None) or changed
        if st.button(
            f"Run {mode}",
            key=f"baseline-{mode}-{view.run_id}",
            icon=":material/playlist_play:",
            disabled=bool(reason),
            help=reason or arm_words.BASELINE_HELP[mode],
        ):
            actions.attempt(partial(frame.service().comparisons.start_baseline, view.run_id, mode))
            st.rerun()


def _states(view: RunView, found: Mapping[Mode, RunView]) -> str:
    if not found:
        return markup.small(arm_words.NO_BASELINE)
    return f'<div class="u-line u-arms">{"".join(_state(run, view) for run in found.values())}</div>'


def _state(run: RunView, view: RunView) -> str:
    if run.state in ENDED:
        said = f"reused, from {frame.ago(run.ended_at_s)}" if reused(run, view) else frame.ago(run.ended_at_s)
    elif run.state is State.QUEUED:
        said = f"waits for {run.waits_for or 'the device'}"
    else:
        said = percent_text(run.progress)
    state = markup.state_badge(run.state)
    return f'<span class="u-line">{markup.arm_badge(run.mode)}{state}{markup.faint(said)}</span>'
