"""Failures of a run or its sub-models, what it waits for, and how to continue: at the top of its page."""

import re
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import streamlit as st

from pages._ui import actions, frame
from unifiednn_core.spec.lifecycle import ENDED, Event, State
from unifiednn_core.views import certificate, markup, wording
from unifiednn_core.views.runs import RunView, SubModelView

WAITING = (State.QUEUED, State.STARTING, State.PAUSING, State.PAUSED, State.STOPPING)
RetryKind = Literal["split", "rate", "plain"]
SHOWN_FAILURES = 3
SPLIT = "Retry with batch split \N{MULTIPLICATION SIGN}2"
PAUSED_RUN = "It holds no device, so other runs can train. It continues at the same step when you resume it."
RESUME_RUN = (
    "Resume continues each sub-model from its last checkpoint, in the middle of its epoch, with the same bits as "
    "without the interruption. Later steps are trained again and count once."
)
_SUGGESTS: tuple[tuple[str, RetryKind], ...] = (
    (r"out of memory|batch split", "split"),
    (r"\bnan\b|not finite|\binf(init[ey])?\b|smaller learning rate", "rate"),
)


class Retry(NamedTuple):
    """One way to try again; None leaves a setting as it is."""

    kind: RetryKind
    label: str
    sentence: str
    batch_split: int | None = None
    learning_rate: float | None = None


def draw(view: RunView) -> None:
    """Draw the banners that apply, the loudest first."""
    broken = [part for part in view.submodels if is_broken(part)]
    _failures(view, broken)
    for part in view.submodels:
        if part.certificate is not None and not part.certificate.holds:
            heading = f"{part.name}: the certificate does not hold"
            told = " ".join((certificate.headline(part.certificate), *part.certificate.findings))
            st.html(markup.notice("red", "gpp_bad", heading, told, "Do not use this file; keep it and tell us."))
    age_s = view.heartbeat_age_s
    if view.state not in ENDED and age_s is not None and age_s > wording.STALE_AFTER_S:
        st.html(markup.notice("orange", "warning", "Stale", wording.stale_text(age_s)))
    words = wording.STATES[view.state]
    if view.state in (State.INTERRUPTED, State.FAILED):
        _end(view, told=bool(broken))
    elif view.state in WAITING:
        st.html(markup.notice(words.colour, words.icon, words.label, _waits(view)))
    if view.kinds:
        kinds = f"It was trained on {len(view.kinds)} kinds of device, which round differently: "
        kinds += f"{'; '.join(view.kinds)}."
        st.html(markup.notice("orange", "warning", "Not the bits of one device", kinds))
    redone_steps = sum(submodel.redone_steps for submodel in view.submodels)
    recovered = wording.recovered_text(view.recoveries, redone_steps, ended=view.state in ENDED)
    if quiet := waiting(view) + (markup.quiet("history", recovered) if recovered else ""):
        st.html(quiet)


def _failures(view: RunView, broken: Sequence[SubModelView]) -> None:
    """A panel for each of the first failures; the others are folded."""
    looks = not any(part.artifact for part in view.submodels) or view.state not in ENDED
    for submodel in broken[:SHOWN_FAILURES]:
        failure_panel(view.run_id, submodel, primary=looks)
    if more := broken[SHOWN_FAILURES:]:
        with st.expander(f"{len(more)} more failed", icon=":material/error:"):
            for submodel in more:
                failure_panel(view.run_id, submodel, primary=False)


def _end(view: RunView, *, told: bool) -> None:
    """How a run ended early; one quiet line if the failures above tell it already."""
    words = wording.STATES[view.state]
    cause, remedy, allowed = view.cause or words.sentence, view.remedy or "", view.actions & own_actions(view)
    if told and not allowed:
        st.html(markup.quiet("info", f"{cause} {remedy}".strip()))
        return
    with st.container(key="panel-interrupted" if view.state is State.INTERRUPTED else None):
        st.html(markup.notice("red", words.icon, words.label, cause, remedy))
        if allowed:
            st.html(markup.small(RESUME_RUN))
            actions.state_buttons(view.run_id, view.name, allowed, look="primary")


def _waits(view: RunView) -> str:
    """What a run waits for, where it is in line, and when it starts."""
    if view.state is State.PAUSED:
        return PAUSED_RUN
    sentences = [wording.STATES[view.state].sentence]
    if view.state is State.QUEUED:
        if view.waits_for:
            sentences = [f"It waits for {view.waits_for.rstrip('.')}."]
        if view.queue_position:
            sentences.append(f"Position {view.queue_position} in the queue.")
        if when := frame.estimate(view.starts_in_s, view.ends_in_s):
            sentences.append(f"It {when}, if nobody comes before it.")
    return " ".join(sentences)


def waiting(view: RunView) -> str:
    """Commands that have not taken effect, one line each, as HTML."""
    lines = []
    for command in view.waiting_commands:
        age = frame.ago(command.issued_at_s, seconds=True)
        lines.append(wording.waiting_text(command.text, command.submodel, age, view.state))
    return "".join(markup.quiet("hourglass_top", line) for line in lines)


def own_actions(view: RunView) -> frozenset[Event]:
    """Actions whose button is in a banner."""
    return frozenset({Event.RESUME}) if view.state is State.INTERRUPTED else frozenset()


def is_broken(submodel: SubModelView) -> bool:
    """Whether a sub-model failed, or has results that cannot be trusted."""
    return bool(submodel.cause) and (submodel.state is State.FAILED or submodel.in_doubt)


def failure_panel(run_id: str, submodel: SubModelView, *, primary: bool) -> None:
    """Draw cause, remedy and possible retries of a sub-model; `primary` is the look of the suggested one."""
    label = "Results in doubt" if submodel.in_doubt else wording.STATES[submodel.state].label
    with st.container(key=f"panel-{submodel.name}"):
        st.html(markup.notice("red", "error", f"{submodel.name}: {label}", submodel.cause or "", submodel.remedy or ""))
        if Event.RETRY in submodel.actions:
            _retries(run_id, submodel, primary=primary)


def _retries(run_id: str, submodel: SubModelView, *, primary: bool) -> None:
    ways = offers(submodel)
    fresh = f"fresh-{run_id}-{submodel.name}"
    step = submodel.checkpoint_step
    start = "It starts from the beginning."
    if step is not None:
        start = f"It continues from its checkpoint at step {step:,}."
    from_start = bool(st.session_state.get(fresh))
    start = "" if from_start else start
    st.html(markup.small(f"{ways[0].label}: {ways[0].sentence} {start}"))
    with st.container(horizontal=True, vertical_alignment="center"):
        for way in ways:
            look: Literal["primary", "secondary"] = "primary" if primary and way is ways[0] else "secondary"
            key, tip = f"retry-{way.kind}-{run_id}-{submodel.name}", f"{way.sentence} {start}"
            if st.button(way.label, key=key, type=look, icon=":material/replay:", help=tip):
                settings: dict[str, Any] = {
                    "learning_rate": way.learning_rate,
                    "batch_split": way.batch_split,
                    "from_start": from_start,
                }
                actions.attempt(partial(frame.service().runs.retry, run_id, submodel.name, **settings))
                st.rerun()
        if step is not None:
            st.checkbox("From the start", key=fresh, help="Ignore the checkpoint and train from the beginning.")


def offers(submodel: SubModelView) -> tuple[Retry, ...]:
    """Ways to retry this sub-model, the suggested one first."""
    parts, rate, ways = submodel.batch_split, submodel.learning_rate, []
    if submodel.batch_size is None or 2 * parts <= submodel.batch_size:
        before = f" instead of {parts}" if parts > 1 else ""
        sentence = f"Each batch passes through in {2 * parts} parts{before}, which needs less memory."
        ways.append(Retry("split", SPLIT, sentence, batch_split=2 * parts))
    if rate is not None:
        smaller = float(f"{rate / 10:.12g}")  # without the rounding error of the division
        sentence = f"Continues with learning rate {smaller:.6g} instead of {rate:.6g}."
        ways.append(Retry("rate", "Retry with learning rate /10", sentence, learning_rate=smaller))
    ways.append(Retry("plain", "Retry", "Same settings."))
    wanted = suggested(submodel)
    return tuple(sorted(ways, key=lambda way: way.kind != wanted))


def suggested(submodel: SubModelView) -> RetryKind:
    """The way that cause and remedy suggest."""
    said = f"{submodel.cause or ''} {submodel.remedy or ''}".lower()
    return next((kind for pattern, kind in _SUGGESTS if re.search(pattern, said)), "plain")
