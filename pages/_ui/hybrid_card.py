"""A hybrid with its members: a worker on a device, and the sub-models of all who share it. For operators."""

import streamlit as st

from pages._ui import actions, frame
from unifiednn_core.base.units import memory_text, percent_text
from unifiednn_core.spec.lifecycle import State
from unifiednn_core.views import attention, markup, wording
from unifiednn_core.views.figures.palette import sign
from unifiednn_core.views.hybrids import HybridMember, ListedHybrid

NAME_WIDTH_PX = 180
QUEUE_PAGE = "pages/queue.py"


def draw(hybrid: ListedHybrid, *, key: str, opens: bool = True) -> None:
    """Draw the card; each name opens its run, and with `opens` a button shows the turns and the memory."""
    with st.container(border=True, key=f"card-{key}-{hybrid.hybrid_id}"):
        with st.container(horizontal=True, vertical_alignment="center", key=f"head-card-{key}-{hybrid.hybrid_id}"):
            kind = (
                "shared"
                if hybrid.shared
                else "private"
                if hybrid.mode == "hybrid"
                else f"{hybrid.mode.capitalize()} baseline"
            )
            badge = f'<span class="u-arm u-arm-hybrid">{markup.text(kind)}</span>'
            since = "" if hybrid.since_s is None else f", since {frame.ago(hybrid.since_s, seconds=True)}"
            beside = markup.note(f"{wording.title(hybrid.policy)}{since}")
            name = markup.text(_name(hybrid))
            st.html(f'<div class="u-line"><b class="u-card-name" title="{name}">{name}</b>{badge}{beside}</div>')
            icon = ":material/monitoring:"
            if opens and st.button("Turns and memory", key=f"turns-{key}-{hybrid.hybrid_id}", icon=icon):
                st.switch_page(QUEUE_PAGE, query_params={"hybrid": hybrid.hybrid_id})
        draw_stale(hybrid.heartbeat_age_s)
        reason = hybrid.now_reason or ("Training." if hybrid.members else "It ends.")
        progress, name = attention.progress_of(hybrid), _name(hybrid)
        when = frame.estimate(None, attention.ends_of(hybrid)) or "the end is not known yet"
        first = f'<b>{percent_text(progress)}</b><span class="u-ends">{markup.text(when)}</span>'
        st.html(figures(first, markup.bar(progress, f"Progress of {name}"), reason, memory_line(hybrid)))
        with st.container(key=f"rows-{key}-{hybrid.hybrid_id}"):
            for member in hybrid.members:
                row = f"row-{key}-{hybrid.hybrid_id}-{member.run_id}-{member.name}"
                with st.container(horizontal=True, vertical_alignment="center", key=row):
                    run_link(member.name, member.run_id)
                    st.html(_cells(member))


def draw_stale(heartbeat_age_s: float | None) -> None:
    """Draw a warning if the worker has been silent for a while."""
    if heartbeat_age_s is not None and heartbeat_age_s > wording.STALE_AFTER_S:
        st.html(markup.notice("orange", "warning", "Stale", wording.stale_text(heartbeat_age_s)))


def figures(first: str, bar: str, reason: str, facts: str) -> str:
    """The lines of a card as HTML: progress and end, the bar, why who trains, and facts."""
    second = f"<b>{markup.text(reason)}</b>{markup.faint(facts)}"
    return f'<div class="u-line">{first}</div><div class="u-gap">{bar}</div><div class="u-line u-small">{second}</div>'


def run_link(name: str, run_id: str, kind: str = "") -> None:
    """Draw a name that opens its run, and its kind, if it has one."""
    label = " · ".join(filter(None, (wording.plain(name), kind)))
    st.page_link(actions.RUN_PAGE, label=label, query_params={"run": run_id}, width=NAME_WIDTH_PX)


def _name(hybrid: ListedHybrid) -> str:
    """A private hybrid has the name of its run."""
    if hybrid.shared or not hybrid.members:
        return f"Hybrid on {hybrid.device}"
    return f"{hybrid.members[0].run_name} on {hybrid.device}"


def _state(member: HybridMember) -> str:
    """Who trains now and who waits for a turn; other states as they are."""
    if member.state not in (State.RUNNING, State.QUEUED):
        return markup.state_badge(member.state)
    words = wording.TRAINS if member.holds_device else wording.WAITS
    label = words.label if member.holds_device else "Waits"
    return markup.badge(label, words.icon, words.colour, words.sentence)


def memory_line(hybrid: ListedHybrid) -> str:
    """Its memory now and at most, and how many share it."""
    count = wording.count_text(len(hybrid.members), "sub-model")
    now, peak = memory_text(hybrid.memory_bytes), memory_text(hybrid.peak_memory_bytes)
    return f"{count} · {now} now, peak {peak}"


def _cells(member: HybridMember) -> str:
    bar = markup.bar(member.progress, f"Progress of {member.name}", sign(member.number).colour)
    steps = f"{member.steps_done:,} / {member.steps_total:,} steps"
    ends = frame.estimate(None, member.ends_in_s)
    ends = f"leaves: {member.leaving}" if member.leaving else ends
    who = member.owner or "local operator"
    cells = (_state(member), markup.faint(who), bar, markup.text(steps), markup.faint(ends))
    return markup.cells("u-brief u-member", cells)
