"""Now: failures first, then who trains and until when, the devices, the line, and recent runs."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Literal

import streamlit as st

from pages._ui import (
    actions,
    arms,
    device_card,
    dialogs,
    draft_list,
    frame,
    hybrid_card,
    line_rows,
    run_lists,
    signed_in,
    submodels,
)
from unifiednn_core.base.units import duration_text, memory_text, percent_text
from unifiednn_core.spec.lifecycle import ENDED, State
from unifiednn_core.views import attention, markup, wording
from unifiednn_core.views.attention import Failure, Saving
from unifiednn_core.views.devices import DeviceCard
from unifiednn_core.views.estimates import Estimate
from unifiednn_core.views.hybrids import LineEntry, ListedHybrid
from unifiednn_core.views.runs import RunView

RECENT_RUNS, MOST_FAILURES = 8, 3
NOTHING_RUNS = "Nothing is training. A run appears here when you start it, with the sub-model that trains and why."
BENEFIT = "Many networks, one process, one device: less memory and the same weights, bit for bit."
PROMISE = (
    "UnifiedNN trains networks of many people as one hybrid. Each keeps its own optimizer, data and random numbers, "
    "and is handed back as its own file when it is done."
)


def main() -> None:
    """Draw the page; every second while a run is active, every five seconds otherwise."""
    frame.page("Now")
    dialogs.draw_all()
    frame.live(draw, arms.any_lives(frame.service().runs.current()), idle_s=frame.IDLE_PERIOD_S)
    draft_list.draw(key="now")
    if signed_in.may("protections"):
        _missing_protections()


def draw(_live: bool) -> bool:
    """Draw everything that moves; returns whether a run is active."""
    service = frame.service()
    runs = service.runs.current(within_s=frame.RECENT_S)
    lives = arms.any_lives(runs)
    if signed_in.may("cluster"):
        device_card.draw_away(service.devices.cluster())
    actions.show_refusals()
    cards = service.devices.cards(within_s=frame.RECENT_S) if signed_in.may("cards") else ()
    if not runs:
        _welcome(cards)
        return lives
    line, hybrids = service.queue.line(), _hybrids()
    queued = [run for run in runs if run.state is State.QUEUED]
    active = [run for run in runs if run.state not in ENDED and run.state is not State.QUEUED]
    ended = [run for run in runs if run.state in ENDED]
    _head(active, queued)
    if failed := attention.failures(runs, service.queue.seen(), frame.now_s()):
        with st.container(key="now-failures"):
            _failures(failed)
    with st.container(key="now-training"):
        _training(active, hybrids, runs)
    if cards:
        with st.container(key="now-devices"):
            device_card.draw(cards)
    _queue(queued, line, hybrids)
    if ended:
        _recent(ended[:RECENT_RUNS])
    return lives


def _hybrids() -> tuple[ListedHybrid, ...]:
    """All hybrids that hold a device, for those who may see them."""
    return frame.service().queue.hybrids() if signed_in.may("hybrids") else ()


def _head(active: Sequence[RunView], queued: Sequence[RunView]) -> None:
    with st.container(horizontal=True, vertical_alignment="center", key="now-head"):
        st.html(markup.title("Now", markup.note(f"{_counts(active, queued)} · data as of {frame.clock()}")))
        actions.demo_button("demo-head", "secondary")
        _build_button("build-head", type="secondary" if active else "primary")


def _missing_protections() -> None:
    for one in frame.service().people.protections():
        if not one.holds:
            st.html(markup.quiet("shield", f"{one.found} {one.remedy}"))


def _build_button(key: str, type: Literal["primary", "secondary"] = "secondary") -> None:
    if signed_in.may("submit") and st.button("Build a hybrid", key=key, type=type, icon=":material/add:"):
        st.switch_page(actions.BUILD_PAGE)


def _counts(active: Sequence[RunView], queued: Sequence[RunView]) -> str:
    paused = sum(run.state is State.PAUSED for run in active)  # it holds no device
    counts = (
        (len(active) - paused, "{count} on the device"),
        (paused, "{count} paused"),
        (len(queued), "{count} waiting"),
    )
    return ", ".join(words.format(count=count) for count, words in counts if count) or "nothing is training"


# -- failures


def _failures(found: Sequence[Failure]) -> None:
    """Draw one red line for each failure that this person has not dismissed."""
    for failure in found[:MOST_FAILURES]:
        key = f"{failure.run_id}-{failure.name}"
        with st.container(horizontal=True, vertical_alignment="center", key=f"failed-{key}"):
            new = f'<span class="u-new">{markup.text("New")}</span>' if failure.is_new else ""
            where = "" if failure.name == failure.run_name else f"in {failure.run_name}"
            sign, look = ("error", "u-fail") if failure.failed else ("warning", "u-fail u-doubt")
            words = f'<b class="u-failure" title="{markup.text(failure.cause)}">{markup.text(failure.sentence)}</b>'
            aside = markup.faint(" · ".join(filter(None, (where, frame.ago(failure.at_s)))))
            st.html(f'<div class="{look}" role="status">{markup.icon(sign)}<div>{words}{new}{aside}</div></div>')
            if st.button("Open", key=f"open-failed-{key}", icon=":material/open_in_new:"):
                _see(failure, dismiss=False)
                actions.open_run(failure.run_id)
            with st.container(key=f"icons-failed-{key}", width=44):
                if actions.icon_button("Dismiss", "close", f"dismiss-{key}"):
                    _see(failure, dismiss=True)
                    st.rerun()
    if len(found) > MOST_FAILURES:
        st.html(markup.small(f"{len(found) - MOST_FAILURES} more failures below, in the list of runs."))


def _see(failure: Failure, *, dismiss: bool) -> None:
    actions.attempt(partial(frame.service().queue.see, failure.run_id, dismiss=dismiss))


# -- what trains


def _training(active: Sequence[RunView], hybrids: Sequence[ListedHybrid], runs: Sequence[RunView]) -> None:
    if not active:
        st.html(markup.small(NOTHING_RUNS))
        if words := next(filter(None, (arms.saved_text(run.fingerprint, runs) for run in runs)), ""):
            st.html(markup.quiet("balance", f"Last verdict: {words}."))
        return
    shared = [hybrid for hybrid in hybrids if hybrid.shared]
    for hybrid in shared:
        hybrid_card.draw(hybrid, key="now")
    placed = {member.run_id for hybrid in shared for member in hybrid.members}
    memory = {hybrid.hybrid_id: hybrid.memory_bytes for hybrid in hybrids}
    ends = frame.service().queue.ends()
    alone = [run for run in active if run.run_id not in placed]
    for place, run in enumerate(alone):
        saved = arms.saved_text(run.fingerprint, runs)
        look: Literal["primary", "secondary"] = "secondary" if place else "primary"
        _active_card(run, ends.get(run.run_id), memory.get(run.run_id), saved, look)


def _active_card(
    run: RunView, ends: Estimate | None, memory_bytes: int | None, saved: str, look: Literal["primary", "secondary"]
) -> None:
    with st.container(border=True, key=f"card-{run.run_id}"):
        with st.container(horizontal=True, vertical_alignment="center", key=f"head-card-{run.run_id}"):
            beside = f"{arms.badge(run)}{markup.state_badge(run.state)}{markup.note(arms.way_text(run))}"
            name = markup.text(run.name)
            st.html(f'<div class="u-line"><b class="u-card-name" title="{name}">{name}</b>{beside}</div>')
            actions.state_buttons(run.run_id, run.name, arms.fitting(run).actions)
            if st.button("Open", key=f"open-{run.run_id}", type=look, icon=":material/monitoring:"):
                actions.open_run(run.run_id)
        hybrid_card.draw_stale(run.heartbeat_age_s)
        st.html(_figures(run, ends, memory_bytes, saved) + "".join(submodels.mini(part, run) for part in run.submodels))


def _figures(run: RunView, ends: Estimate | None, memory_bytes: int | None, saved: str) -> str:
    """Progress, end, memory and the reason of the turn, as HTML."""
    when = frame.estimate(None, ends) or "the end is not known yet"
    reason = run.now_reason or wording.STATES[run.state].sentence
    if run.state is State.PAUSED:
        when, reason, memory_bytes = "paused: it holds no device", wording.STATES[run.state].sentence, None
    spent = "" if run.elapsed_s is None else f"{duration_text(run.elapsed_s)} so far"
    first = f'<b>{percent_text(run.progress)}</b><span class="u-ends">{markup.text(when)}</span>{markup.faint(spent)}'
    facts = [wording.device_text(run.device)]
    if memory_bytes is not None:
        facts.append(f"{memory_text(memory_bytes)} now, peak {memory_text(run.peak_memory_bytes)}")
    elif run.peak_memory_bytes is not None:
        facts.append(f"peak {memory_text(run.peak_memory_bytes)}")
    if saved:
        facts.append(f"last time {saved}")
    return hybrid_card.figures(first, markup.bar(run.progress, f"Progress of {run.name}"), reason, " · ".join(facts))


# -- the line and recent runs


def _queue(queued: Sequence[RunView], line: Sequence[LineEntry], hybrids: Sequence[ListedHybrid]) -> None:
    if not queued:
        return
    known: Mapping[str, RunView] = {run.run_id: run for run in queued}
    st.html(markup.section("Queue", wording.count_text(len(queued), "run")))
    if held := line_rows.holders(hybrids):  # Streamlit takes no empty HTML
        st.html(held)
    line_rows.draw([entry for entry in line if entry.run_id in known], known, key="queue")
    in_line = {entry.run_id for entry in line}
    rest = [run for run in queued if run.run_id not in in_line]  # those that rest for a while after a death
    if rest:
        run_lists.draw_runs(sorted(rest, key=lambda run: run.queue_position or 0), key="rest")


def _recent(ended: Sequence[RunView]) -> None:
    with st.container(horizontal=True, vertical_alignment="center", key="section-recent"):
        st.html(markup.section("Recent runs"), width="content")
        st.page_link(actions.RUN_PAGE, label="All runs", icon=":material/list:")
    run_lists.draw_runs(ended, key="recent", heads=True)


# -- an empty server


def _welcome(cards: Sequence[DeviceCard]) -> None:
    st.html(markup.title("Now"))
    with actions.empty_page(BENEFIT, PROMISE, "demo-empty"):
        _build_button("build-empty")
    with st.container(key="now-welcome"):
        st.html(_picture(attention.shipped_saving()))
        st.html(markup.small(actions.DEMO_HELP))
        if cards:
            device_card.draw(cards)


def _picture(saving: Saving) -> str:
    """Two pairs of bars: memory and time of a hybrid beside those of plain PyTorch."""
    rows = [("Memory", saving.hybrid_bytes, saving.baseline_bytes, memory_text)]
    pairs = "".join(_pair(label, ours, theirs, words(ours), words(theirs)) for label, ours, theirs, words in rows)
    if saving.hybrid_s and saving.baseline_s:
        ours_s, theirs_s = saving.hybrid_s, saving.baseline_s
        pairs += _pair("Time", ours_s, theirs_s, duration_text(ours_s), duration_text(theirs_s))
    head = f"{saving.networks} networks at once, measured"
    foot = markup.small(f"Source: {saving.source}. The weights are the same, bit for bit.")
    return f'<section class="u-picture"><h3>{markup.text(head)}</h3>{pairs}{foot}</section>'


def _pair(label: str, ours: float, theirs: float, ours_text: str, theirs_text: str) -> str:
    most = max(ours, theirs)
    lines = (("One hybrid", ours, ours_text, "u-ours"), ("Plain PyTorch", theirs, theirs_text, "u-theirs"))
    bars = "".join(
        f'<span>{markup.text(name)}</span><i class="{looks}" style="width:{100 * value / most:.1f}%"></i>'
        f"<b>{markup.text(words)}</b>"
        for name, value, words, looks in lines
    )
    return f'<div class="u-pair"><h4>{markup.text(label)}</h4>{bars}</div>'


if __name__ == "__main__":
    main()
