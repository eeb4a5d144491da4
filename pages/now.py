"""Now: what trains at this moment and why, what waits, and what ended lately."""

from collections.abc import Sequence

import streamlit as st

from pages._ui import actions, arms, frame, markup, run_rows, signed_in, stop_dialog, submodels, wording
from unifiednn_core.lifecycle import ENDED, State
from unifiednn_core.units import duration_text, percent_text
from unifiednn_core.views.runs import RunView

RECENT_RUNS = 8
LIVE_PERIOD_S, IDLE_PERIOD_S = 1.0, 5.0


def main() -> None:
    """Draw the page; it looks again every second while something trains, every five otherwise."""
    frame.page("Now")
    stop_dialog.draw()
    live = _any_live(frame.service().runs())
    st.fragment(run_every=LIVE_PERIOD_S if live else IDLE_PERIOD_S)(draw)(live)


def draw(live: bool) -> None:
    """Draw everything that moves; `live` is whether something trained when the page was drawn."""
    runs = frame.service().runs()
    if _any_live(runs) != live:
        st.rerun()  # with the other period
    actions.show_refusals()
    queued = sorted((r for r in runs if r.state is State.QUEUED), key=lambda r: r.queue_position or 0)
    active = [run for run in runs if run.state not in ENDED and run.state not in (State.QUEUED, State.DRAFT)]
    ended = [run for run in runs if run.state in ENDED]
    if not runs:
        _empty()
        return
    _head(active, queued)
    if not active:
        st.html(markup.small(wording.NOTHING_RUNS))
    for run in active:
        _active_card(run)
    if queued:
        st.html(markup.section("Queue", wording.count_text(len(queued), "run")))
        run_rows.draw_rows(queued, key="queue")
    if ended:
        st.html(markup.section("Recent runs"))
        run_rows.draw_rows(ended[:RECENT_RUNS], key="recent")


def _any_live(runs: Sequence[RunView]) -> bool:
    return any(run.state not in ENDED and run.state is not State.DRAFT for run in runs)


def _head(active: Sequence[RunView], queued: Sequence[RunView]) -> None:
    with st.container(horizontal=True, vertical_alignment="center"):
        counts = f"{len(active)} on the device, {len(queued)} waiting"
        st.html(markup.title("Now", markup.note(f"{counts} · data as of {frame.clock()}")))
        actions.demo_button("demo-head", primary=False)
        if signed_in.may("submit") and st.button(
            "Build a hybrid", key="build-head", type="secondary" if active else "primary", icon=":material/add:"
        ):
            st.switch_page(actions.BUILD_PAGE)


def _empty() -> None:
    st.html(markup.title("Now"))
    st.html(markup.empty("Train several networks as one", wording.NO_RUNS))
    with st.container(horizontal=True, horizontal_alignment="center"):
        actions.demo_button("demo-empty", primary=True)
        if signed_in.may("submit") and st.button("Build a hybrid", key="build-empty", icon=":material/add:"):
            st.switch_page(actions.BUILD_PAGE)
        if st.button("Open a past run", key="past-empty", icon=":material/history:"):
            st.switch_page(actions.RUN_PAGE)


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
        figures = f"{percent_text(run.progress)} of all steps · {duration_text(run.elapsed_s)} · {run.device}"
        reason = run.now_reason or wording.STATES[run.state].sentence
        lines = f'<div class="u-line u-small"><b>{markup.text(reason)}</b>{markup.faint(figures)}</div>'
        st.html(f'{lines}<div class="u-gap">{progress}</div>' + "".join(map(submodels.mini, run.submodels)))


if __name__ == "__main__":
    main()
