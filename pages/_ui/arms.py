"""The runs that belong together: a hybrid and its baselines, and what a baseline can do."""

from collections.abc import Sequence
from dataclasses import replace

import streamlit as st

from pages._ui import frame, markup, signed_in
from unifiednn_core.errors import UnifiedNNError
from unifiednn_core.lifecycle import ENDED, Event, State
from unifiednn_core.report.words import HOW
from unifiednn_core.views.comparison import BASELINES, Comparison, Mode
from unifiednn_core.views.runs import RunView

USELESS = frozenset({State.FAILED, State.STOPPED, State.INTERRUPTED})
"""A baseline that ended so can be run again."""


def is_baseline(view: RunView) -> bool:
    """Whether a run is a baseline."""
    return view.mode in BASELINES


def fitting(view: RunView) -> RunView:
    """The run with what can be done to it: a baseline can only be stopped, and as a whole."""
    if not is_baseline(view):
        return view
    parts = tuple(replace(submodel, actions=frozenset()) for submodel in view.submodels)
    return replace(view, actions=view.actions & {Event.STOP}, submodels=parts)


def badge(view: RunView) -> str:
    """What a run is where it is a baseline, as HTML; nothing for a hybrid."""
    return markup.arm_badge(view.mode, " baseline") if is_baseline(view) else ""


def way_text(view: RunView) -> str:
    """How a run trains: the policy of a hybrid, the processes of a baseline."""
    return HOW[view.mode] if is_baseline(view) else view.policy_text


def newest(runs: Sequence[RunView]) -> dict[Mode, RunView]:
    """The newest run of each kind of baseline, one that did not come to its end only where there is no other."""
    found: dict[Mode, RunView] = {}
    for mode in BASELINES:
        own = [run for run in runs if run.mode == mode]
        best = next((run for run in own if run.state not in USELESS), own[0] if own else None)
        if best is not None:
            found[mode] = best
    return found


def comparable(run_id: str) -> tuple[RunView, ...]:
    """All runs of equal fingerprint, newest first, without curves; none where that cannot be told."""
    try:
        return tuple(frame.service().comparable(run_id))
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
    """The run with its curves; of one that has ended they are read once."""
    if run.state not in ENDED:
        return frame.service().observe(run.run_id)
    person = signed_in.actor()
    return _of_ended(run.run_id, run.ended_at_s, None if person is None else (person.id, person.role))


def comparison(run_id: str) -> Comparison | None:
    """The comparison of a run; None where there is none."""
    try:
        return frame.service().comparison(run_id)
    except UnifiedNNError:
        return None


def reused(baseline: RunView, hybrid: RunView) -> bool:
    """Whether a baseline was there before the hybrid was handed in."""
    return baseline.ended_at_s is not None and baseline.ended_at_s <= hybrid.created_at_s


@st.cache_resource(show_spinner=False, max_entries=16)
def _of_ended(run_id: str, ended_at_s: float | None, person: tuple[str, str] | None) -> RunView:
    return frame.service().observe(run_id)
