"""Now: active runs with the reason of each turn, the queue, and recent runs."""

from collections.abc import Sequence
from typing import Literal

import streamlit as st

from pages._ui import actions, arms, dialogs, draft_list, frame, hybrid_card, run_lists, signed_in, submodels
from unifiednn_core.base.units import duration_text, percent_text
from unifiednn_core.spec.lifecycle import ENDED, State
from unifiednn_core.views import markup, wording
from unifiednn_core.views.hybrids import ListedHybrid
from unifiednn_core.views.runs import RunView

RECENT_RUNS = 8
NOTHING_RUNS = "Nothing is training. A run appears here when you start it, with the sub-model that trains and why."
PROMISE = "They share one process and one device; each keeps its own optimizer, data and random numbers."


def main() -> None:
    """Draw the page; every second while a run is active, every five seconds otherwise."""
    frame.page("Now")
    dialogs.draw_all()
    frame.live(draw, arms.any_lives(frame.service().runs.runs()), idle_s=frame.IDLE_PERIOD_S)
    draft_list.draw(key="now")
    if signed_in.may("protections"):
        _missing_protections()


def draw(live: bool) -> None:
    """Draw everything that moves; `live` says whether a run was active when the page was drawn."""
    runs = frame.service().runs.runs(within_s=frame.RECENT_S)
    if arms.any_lives(runs) != live:
        st.rerun()  # with the other period
    actions.show_refusals()
    queued = sorted((r for r in runs if r.state is State.QUEUED), key=lambda r: r.queue_position or 0)
    active = [run for run in runs if run.state not in ENDED and run.state is not State.QUEUED]
    ended = [run for run in runs if run.state in ENDED]
    if not runs:
        st.html(markup.title("Now"))
        with actions.empty_page("Train several networks as one", f"{PROMISE} {wording.NO_RUNS}", "demo-empty"):
            _build_button("build-empty")
        return
    _head(active, queued)
    if not active:
        st.html(markup.small(NOTHING_RUNS))
    hybrids = _shared_hybrids()
    for hybrid in hybrids:
        hybrid_card.draw(hybrid, key="now")
    placed = {member.run_id for hybrid in hybrids for member in hybrid.members}
    for run in active:
        if run.run_id not in placed:
            _active_card(run)
    if queued:
        st.html(markup.section("Queue", wording.count_text(len(queued), "run")))
        run_lists.draw_runs(queued, key="queue")
    if ended:
        st.html(markup.section("Recent runs"))
        run_lists.draw_runs(ended[:RECENT_RUNS], key="recent")


def _shared_hybrids() -> tuple[ListedHybrid, ...]:
    """Hybrids in which the networks of several runs train, for those who may see them."""
    if not signed_in.may("hybrids"):
        return ()
    return tuple(hybrid for hybrid in frame.service().queue.hybrids() if hybrid.shared)


def _head(active: Sequence[RunView], queued: Sequence[RunView]) -> None:
    with st.container(horizontal=True, vertical_alignment="center"):
        st.html(markup.title("Now", markup.note(f"{_counts(active, queued)} · data as of {frame.clock()}")))
        actions.demo_button("demo-head", "secondary")
        _build_button("build-head", type="secondary" if active else "primary")


def _missing_protections() -> None:
    for one in frame.service().people.protections():
        if not one.holds:
            st.html(markup.quiet("shield", f"{one.text} {one.remedy}"))


def _build_button(key: str, type: Literal["primary", "secondary"] = "secondary") -> None:
    if signed_in.may("submit") and st.button("Build a hybrid", key=key, type=type, icon=":material/add:"):
        st.switch_page(actions.BUILD_PAGE)


def _counts(active: Sequence[RunView], queued: Sequence[RunView]) -> str:
    paused = sum(run.state is State.PAUSED for run in active)  # it holds no device
    counts = ((len(active) - paused, "on the device"), (paused, "paused"), (len(queued), "waiting"))
    return ", ".join(f"{count} {words}" for count, words in counts if count) or "nothing is training"


def _active_card(run: RunView) -> None:
    with st.container(border=True, key=f"card-{run.run_id}"):
        with st.container(horizontal=True, vertical_alignment="center"):
            beside = f"{arms.badge(run)}{markup.state_badge(run.state)}{markup.note(arms.way_text(run))}"
            st.html(f'<div class="u-line"><b style="font-size:1.1rem">{markup.text(run.name)}</b>{beside}</div>')
            actions.state_buttons(run.run_id, run.name, arms.fitting(run).actions)
            if st.button("Open", key=f"open-{run.run_id}", type="primary", icon=":material/monitoring:"):
                actions.open_run(run.run_id)
        if run.heartbeat_age_s is not None and run.heartbeat_age_s > wording.STALE_AFTER_S:
            st.html(markup.notice("orange", "warning", "Stale", wording.stale_text(run.heartbeat_age_s)))
        progress = markup.bar(run.progress, f"Progress of {run.name}")
        done, device = percent_text(run.progress), wording.device_text(run.device)
        figures = f"{done} of all steps · {duration_text(run.elapsed_s)} · {device}"
        reason = run.now_reason or wording.STATES[run.state].sentence
        lines = f'<div class="u-line u-small"><b>{markup.text(reason)}</b>{markup.faint(figures)}</div>'
        st.html(
            f'{lines}<div class="u-gap">{progress}</div>' + "".join(submodels.mini(part, run) for part in run.submodels)
        )


if __name__ == "__main__":
    main()
