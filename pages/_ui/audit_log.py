"""The audit log: search, filters, pages, and all of it as CSV."""

from datetime import UTC, datetime

import streamlit as st

from pages._ui import frame, pager
from unifiednn_core.views import markup, wording

ROWS = 50
KEY, ASKED = "audit", "audit-asked"


def draw() -> None:
    """Draw one page of the log, the newest line first."""
    desk = frame.service().people
    people, actions_known = desk.audited_names()
    with st.container(horizontal=True, vertical_alignment="bottom", key="audit-filters"):
        text = st.text_input("Search", key="audit-text", placeholder="person, action, subject", width=260)
        person = st.selectbox("Person", people, None, key="audit-person", placeholder="everybody", width=240)
        action = st.selectbox("Action", actions_known, None, _plain, "audit-action", placeholder="all", width=220)
        asked = {"text": text.strip(), "person": person or "", "action": action or ""}
        tip, icon = "All lines that match, with times in UTC.", ":material/download:"
        st.download_button(
            "CSV", lambda: desk.audit_csv(**asked), "audit.csv", "text/csv", "audit-csv", tip, "ignore", icon=icon
        )
    if st.session_state.get(ASKED, asked) != asked:
        pager.restart(KEY)
    st.session_state[ASKED] = asked
    total = desk.audit_lines(**asked)
    page = min(pager.page_of(KEY), max(0, (total - 1) // ROWS))
    lines = desk.audit(ROWS, skip=page * ROWS, **asked)
    if not lines:
        st.html(markup.empty("No line matches", "Change the search or the filters."))
        return
    table = (
        {"Time": moment(line.at_s), "Person": line.person, "Role": line.role}
        | {"Action": _plain(line.action), "Subject": line.subject or "-", "Outcome": line.outcome}
        for line in lines
    )
    looks = {"Time": markup.faint, "Person": markup.bold}
    caption = f"Newest first, {wording.count_text(total, 'line')}"
    st.html(f'<div class="u-log">{markup.table(caption, table, looks)}</div>')
    pager.draw(page, total, ROWS, key=KEY)


def moment(at_s: float) -> str:
    """Moment (UTC seconds) as date and time in UTC, the time zone of the audit log."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _plain(action: str) -> str:
    return action.replace("_", " ")
