"""Runs that belong together: a hybrid and its baselines. Words for a verdict are in the report."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import streamlit as st

from pages._ui import actions, frame, signed_in
from unifiednn_core.base.errors import UnifiedNNError
from unifiednn_core.base.units import percent_text
from unifiednn_core.service.comparisons import ComparisonService
from unifiednn_core.spec.lifecycle import ENDED, Event, State
from unifiednn_core.spec.run import BASELINES, Mode
from unifiednn_core.views import markup, wording
from unifiednn_core.views.comparison import Comparison, Spread
from unifiednn_core.views.report.cards import HOW, QUANTITIES, difference
from unifiednn_core.views.runs import RunView

USELESS = frozenset({State.FAILED, State.STOPPED, State.INTERRUPTED})
"""A baseline that ended in one of these can be run again."""
CHOICES: dict[str, tuple[Mode, ...]] = {
    "None": (),
    "Concurrent": ("concurrent",),
    "Sequential": ("sequential",),
    "Both": BASELINES,
}
CHOICE_HELP = (
    "Trains the same sub-models with plain PyTorch, for comparison. Concurrent: one process each, all at once. "
    "Sequential: one after the other. A baseline never runs at the same time as the hybrid. An equal one is reused."
)
OVERLAY_HELP = "Draws the training curves of the newest baseline of each kind over the hybrid's, dashed in grey."


SHARED = "in shared hybrids"


def is_baseline(view: RunView) -> bool:
    """Whether a run is a baseline."""
    return view.mode in BASELINES


def fitting(view: RunView) -> RunView:
    """The run with the actions that fit it: a baseline can only be stopped, as a whole."""
    if not is_baseline(view):
        return view
    parts = tuple(replace(submodel, actions=frozenset()) for submodel in view.submodels)
    return replace(view, actions=view.actions & {Event.STOP}, submodels=parts)


def badge(view: RunView) -> str:
    """Badge of a baseline as HTML; empty for a hybrid."""
    return markup.arm_badge(view.mode, f"{view.mode.capitalize()} baseline") if is_baseline(view) else ""


def way_text(view: RunView) -> str:
    """How a run trains: the policy of its own hybrid, in shared ones, or the processes of a baseline."""
    if view.shared:
        return SHARED
    return HOW[view.mode] if is_baseline(view) else view.policy_text


def newest(runs: Sequence[RunView]) -> dict[Mode, RunView]:
    """The newest run of each kind of baseline; one that ended early only if no other exists."""
    ranked = sorted(runs, key=lambda run: run.state in USELESS)
    known = {mode: next((run for run in ranked if run.mode == mode), None) for mode in BASELINES}
    return {mode: run for mode, run in known.items() if run is not None}


def comparable(run_id: str) -> tuple[RunView, ...]:
    """All runs of equal fingerprint, newest first, without curves; none if the service refuses."""
    try:
        return tuple(frame.service().comparisons.comparable(run_id, within_s=frame.RECENT_S))
    except UnifiedNNError:
        return ()


def any_lives(runs: Iterable[RunView]) -> bool:
    """Whether one of the runs has not ended."""
    return any(run.state not in ENDED for run in runs)


def with_curves(runs: Sequence[RunView]) -> list[RunView]:
    """The newest run of each kind of baseline that has trained, with its curves."""
    trained = [run for run in runs if any(submodel.steps_done for submodel in run.submodels)]
    return [observed(run) for run in newest(trained).values()]


def observed(run: RunView) -> RunView:
    """The run with its curves; those of an ended run are read once."""
    if run.state not in ENDED:
        return frame.service().runs.observe(run.run_id)
    return _of_ended(run.run_id, run.ended_at_s, signed_in.viewer())


@st.cache_resource(show_spinner=False, max_entries=16)
def _of_ended(run_id: str, ended_at_s: float | None, person: tuple[str, str] | None) -> RunView:
    return frame.service().runs.observe(run_id)


def comparison(run_id: str) -> Comparison | None:
    """The comparison of a run; None if there is none."""
    try:
        return frame.service().comparisons.comparison(run_id)
    except UnifiedNNError:
        return None


def draw_row(view: RunView, found: Mapping[Mode, RunView]) -> bool:
    """Draw the line of a hybrid with its baselines; returns whether its charts show their curves."""
    states = "".join(_state(run, view) for run in found.values())
    changed = _service().why_no_baseline(view.run_id) if _missing(found) else None
    impossible = no_baseline_text(view.state, None) or (changed or "")
    words = impossible or "No baseline yet. Run one to see what merging saves."
    line = f'<div class="u-line u-arms">{states}</div>' if found else markup.small(words)
    key = f"arms-shown-{view.run_id}"
    with st.container(horizontal=True, vertical_alignment="center", key="section-arms"):
        st.html(markup.section("Against plain PyTorch") + line)
        live = view.state not in ENDED
        if found and live and st.button("Compare", key="open-compare", icon=":material/balance:"):
            st.switch_page(actions.COMPARE_PAGE, query_params={"run": view.run_id})
        label, tip = "Baselines in the charts", OVERLAY_HELP
        if found:
            shown = st.toggle(label, True, key, help=tip)
        else:  # a switch of its own, because one that is off and one that cannot be used look alike
            shown = st.toggle(label, False, f"{key}-none", disabled=True, help=tip)
        missing_buttons(view, found, changed)
    return bool(shown)


def _service() -> ComparisonService:
    return frame.service().comparisons


def _missing(found: Mapping[Mode, RunView]) -> bool:
    return not all(mode in found and found[mode].state is State.COMPLETED for mode in BASELINES)


def _state(run: RunView, view: RunView) -> str:
    if run.state in ENDED:
        reused = run.ended_at_s is not None and run.ended_at_s <= view.created_at_s
        age = frame.ago(run.ended_at_s)
        words = f"reused, from {age}" if reused else age
    elif run.state is State.QUEUED:
        words = f"waits for {run.waits_for or 'the device'}"
    else:
        words = percent_text(run.progress)
    badges = markup.arm_badge(run.mode) + markup.state_badge(run.state)
    return f'<span class="u-line">{badges}{markup.faint(words)}</span>'


def missing_buttons(view: RunView, found: Mapping[Mode, RunView], changed: str | None = None) -> None:
    """A button for each kind of baseline, until both have completed; `changed` says why none can be started.

    A button that cannot be used stays, disabled with its reason: if it went, the other would get a double click.
    """
    if not _missing(found):
        return
    changed = changed or _service().why_no_baseline(view.run_id)
    for mode in BASELINES:
        reason = no_baseline_text(view.state, found[mode].state if mode in found else None) or changed
        tip = reason or f"Trains the same sub-models by {HOW[mode]}. It starts when a device is free."
        key, icon = f"baseline-{mode}-{view.run_id}", ":material/playlist_play:"
        label = f"Run {mode}"
        if st.button(label, key=key, icon=icon, disabled=bool(reason), help=tip):
            actions.attempt(partial(_service().start_baseline, view.run_id, mode))
            st.rerun()


def no_baseline_text(hybrid: State, baseline: State | None) -> str:
    """Why a baseline of a hybrid cannot be started now; empty if it can."""
    if baseline is not None and (baseline is State.COMPLETED or baseline not in ENDED):
        reasons = {State.QUEUED: "It waits for the device.", State.COMPLETED: "It has completed."}
        return reasons.get(baseline, "It is running.")
    if hybrid is State.STOPPED:
        return "This run was stopped; it cannot be compared."
    return "This run failed; it cannot be compared." if hybrid is State.FAILED else ""


def choice_of(modes: tuple[Mode, ...]) -> str:
    """Name of a choice of baselines."""
    return next((name for name, chosen in CHOICES.items() if set(chosen) == set(modes)), "None")


def difference_text(comparison: Comparison | None, ratio: str) -> str:
    """One ratio of the first verdict in words, such as "54 % less memory than concurrent"; empty without a verdict."""
    quantity = next(quantity for quantity in QUANTITIES if quantity.ratio == ratio)
    verdicts = comparison.verdicts if comparison is not None else {}
    known: dict[Mode, Spread | None] = {mode: getattr(verdicts.get(mode), ratio, None) for mode in BASELINES}
    return next((difference(spread, quantity, mode) for mode, spread in known.items() if spread is not None), "")


def saved_text(fingerprint: str, runs: Sequence[RunView]) -> str:
    """What the verdict says of the memory of the newest hybrid that completed such a training; empty without one.

    `runs` are the newest first.
    """
    equal = [run for run in runs if fingerprint and run.fingerprint == fingerprint and run.state in ENDED]
    hybrid = next((run for run in equal if not is_baseline(run) and run.state is State.COMPLETED), None)
    if hybrid is None or not any(map(is_baseline, equal)):
        return ""
    key = tuple((run.run_id, run.ended_at_s) for run in equal)
    return _saved_text(hybrid.run_id, key, signed_in.viewer())


@st.cache_resource(show_spinner=False, max_entries=64)
def _saved_text(run_id: str, equal: Sequence[object], person: tuple[str, str] | None) -> str:
    """Judged once for the same ended runs: a page asks every second."""
    return difference_text(comparison(run_id), "memory_ratio")


def baselines_text(found: Mapping[Mode, RunView]) -> str:
    """Which baselines a hybrid has, on one line."""
    words = {
        mode: f"{mode} done" if run.state is State.COMPLETED else f"{mode} {wording.STATES[run.state].label.lower()}"
        for mode, run in found.items()
    }
    return ", ".join(words[mode] for mode in BASELINES if mode in words) or "no baseline yet"
