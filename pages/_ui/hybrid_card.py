"""A hybrid with its members: a worker on a device, and the sub-models of all who share it. For operators."""

import streamlit as st

from pages._ui import actions, frame
from unifiednn_core.base.units import memory_text
from unifiednn_core.views import markup, wording
from unifiednn_core.views.figures.palette import sign
from unifiednn_core.views.hybrids import HybridMember, ListedHybrid

NAME_WIDTH_PX = 180
QUEUE_PAGE = "pages/queue.py"


def draw(hybrid: ListedHybrid, *, key: str, opens: bool = True) -> None:
    """Draw the card; each name opens its run, and with `opens` a button shows the turns and the memory."""
    with st.container(border=True, key=f"card-{key}-{hybrid.hybrid_id}"):
        with st.container(horizontal=True, vertical_alignment="center"):
            kind = "shared" if hybrid.shared else "private" if hybrid.mode == "hybrid" else f"{hybrid.mode} baseline"
            badge = f'<span class="u-arm u-arm-hybrid">{markup.text(kind)}</span>'
            since = "" if hybrid.since_s is None else f", since {frame.ago(hybrid.since_s, seconds=True)}"
            beside = markup.note(f"{wording.title(hybrid.policy)}{since}")
            name = markup.text(f"Hybrid on {hybrid.device}")
            st.html(f'<div class="u-line"><b style="font-size:1.1rem">{name}</b>{badge}{beside}</div>')
            icon = ":material/monitoring:"
            if opens and st.button("Turns and memory", key=f"turns-{key}-{hybrid.hybrid_id}", icon=icon):
                st.switch_page(QUEUE_PAGE, query_params={"hybrid": hybrid.hybrid_id})
        if hybrid.heartbeat_age_s is not None and hybrid.heartbeat_age_s > wording.STALE_AFTER_S:
            st.html(markup.notice("orange", "warning", "Stale", wording.stale_text(hybrid.heartbeat_age_s)))
        reason = hybrid.now_reason or ("Training." if hybrid.members else "It ends.")
        st.html(f'<div class="u-line u-small"><b>{markup.text(reason)}</b>{markup.faint(memory_line(hybrid))}</div>')
        with st.container(key=f"rows-{key}-{hybrid.hybrid_id}"):
            for member in hybrid.members:
                row = f"row-{key}-{hybrid.hybrid_id}-{member.run_id}-{member.name}"
                with st.container(horizontal=True, vertical_alignment="center", key=row):
                    run_link(member.name, member.run_id)
                    st.html(_cells(member))


def run_link(name: str, run_id: str) -> None:
    """Draw a name that opens its run."""
    query = {"run": run_id}
    st.page_link(actions.RUN_PAGE, label=wording.plain(name), query_params=query, width=NAME_WIDTH_PX)


def memory_line(hybrid: ListedHybrid) -> str:
    """Its memory now and at most, and how many share it."""
    count = wording.count_text(len(hybrid.members), "sub-model")
    return f"{count} · {memory_text(hybrid.memory_bytes)} now, peak {memory_text(hybrid.peak_memory_bytes)}"


def _cells(member: HybridMember) -> str:
    bar = markup.bar(member.progress, f"Progress of {member.name}", sign(member.number).colour)
    steps = f"{member.steps_done:,} / {member.steps_total:,} steps"
    ends = frame.estimate(None, member.ends_in_s)
    ends = f"leaves: {member.leaving}" if member.leaving else ends
    who = member.owner or "local operator"
    cells = (markup.state_badge(member.state), markup.faint(who), bar, markup.text(steps), markup.faint(ends))
    return markup.cells("u-brief u-member", cells)
