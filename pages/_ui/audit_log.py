"""The audit log: search, filters, pages, and all of it as CSV."""

from datetime import UTC, datetime

import streamlit as st

from pages._ui import frame
from unifiednn_core.base.texts import tr
from unifiednn_core.views import markup, wording

ROWS = 50
PAGE, ASKED = "audit-page", "audit-asked"


def draw() -> None:
    """Draw one page of the log, the newest line first."""
    desk = frame.service().people
    people, actions_known = desk.audited_names()
    with st.container(horizontal=True, vertical_alignment="bottom", key="audit-filters"):
        text = st.text_input(tr("Search"), key="audit-text", placeholder=tr("person, action, subject"), width=260)
        person = st.selectbox(tr("Person"), people, None, key="audit-person", placeholder=tr("everybody"), width=240)
        action = st.selectbox(
            tr("Action"), actions_known, None, _plain, "audit-action", placeholder=tr("all"), width=220
        )
        asked = {"text": text.strip(), "person": person or "", "action": action or ""}
        tip, icon = tr("All lines that match, with times in UTC."), ":material/download:"
        st.download_button(
            "CSV", lambda: desk.audit_csv(**asked), "audit.csv", "text/csv", "audit-csv", tip, "ignore", icon=icon
        )
    if st.session_state.get(ASKED, asked) != asked:
        st.session_state.pop(PAGE, None)
    st.session_state[ASKED] = asked
    total = desk.audit_lines(**asked)
    last = max(0, (total - 1) // ROWS)
    page = min(st.session_state.get(PAGE, 0), last)
    lines = desk.audit(ROWS, skip=page * ROWS, **asked)
    if not lines:
        st.html(markup.empty(tr("No line matches"), tr("Change the search or the filters.")))
        return
    table = (
        {tr("Time"): moment(line.at_s), tr("Person"): line.person, tr("Role"): line.role}
        | {tr("Action"): _plain(line.action), tr("Subject"): line.subject or "-", tr("Outcome"): line.outcome}
        for line in lines
    )
    looks = {tr("Time"): markup.faint, tr("Person"): markup.bold}
    caption = tr("Newest first, {count}", count=wording.count_text(total, "line"))
    st.html(f'<div class="u-log">{markup.table(caption, table, looks)}</div>')
    if last:
        _pager(page, last, total)


def moment(at_s: float) -> str:
    """Moment (UTC seconds) as date and time in UTC, the time zone of the audit log."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _plain(action: str) -> str:
    return action.replace("_", " ")


def _pager(page: int, last: int, total: int) -> None:
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="right", key="audit-pager"):
        first, end = page * ROWS + 1, min(total, page * ROWS + ROWS)
        words = tr("{first} to {last} of {total}", first=first, last=end, total=total)
        st.html(markup.small(words), width="content")
        back = st.button(tr("Newer"), key="audit-back", icon=":material/chevron_left:", disabled=page <= 0)
        on = st.button(tr("Older"), key="audit-on", icon=":material/chevron_right:", disabled=page >= last)
    if back or on:
        st.session_state[PAGE] = page + (1 if on else -1)
        st.rerun()
