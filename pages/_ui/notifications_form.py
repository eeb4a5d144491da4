"""Webhooks, for admins: addresses that receive an event when a run ends."""

import streamlit as st

from pages._ui import actions, frame
from unifiednn_core.base.errors import UnifiedNNError
from unifiednn_core.service.notifications import EVENTS, OF_RUNS, NotificationService
from unifiednn_core.views import markup, wording

ABOUT = "An address gets a signed JSON document for each event, which Slack and its like show as a message."
NONE_YET = "Chats, pagers and scripts can hear when a run ends."
SECRET = "It is shown only once. With it the receiver verifies who sent a document (docs/OPERATE.md)."
WIDTH_PX = 360


def draw() -> None:
    """Draw the form, the list of webhooks, and what can be done with one."""
    desk = frame.service().notifications
    try:
        _add(desk)
        _change(desk)
    except UnifiedNNError as error:
        actions.show_error(error)
    found = desk.webhooks()
    if not found:
        st.html(markup.empty("No webhooks yet", NONE_YET))
        return
    table = (
        {
            "Webhook": one.webhook_id,
            "Address": one.shown,
            "Last delivery": one.error or "did not fail",
            "Events": ", ".join(one.events),
            "Added": frame.ago(one.created_at_s),
            "By": one.created_by,
        }
        for one in found
    )
    looks = {"Address": markup.mono, "Added": markup.faint}
    st.html(markup.table(wording.count_text(len(found), "webhook"), table, looks))


def _add(desk: NotificationService) -> None:
    with st.form("hook-new", clear_on_submit=True):
        url = st.text_input("Address", key="hook-url", placeholder="https://", help=ABOUT)
        events = st.multiselect("Events", EVENTS, OF_RUNS, key="hook-events")
        pressed = st.form_submit_button("Add webhook", type="primary", icon=":material/add:", key="hook-add")
    if pressed:
        made = desk.add_webhook(url.strip(), events)
        st.html(markup.notice("green", "key", "Copy the secret now", SECRET))
        st.code(made.secret, language=None)


def _change(desk: NotificationService) -> None:
    names = {one.webhook_id: f"{one.shown} ({one.webhook_id})" for one in desk.webhooks()}
    with st.container(horizontal=True, vertical_alignment="bottom"):
        chosen = st.selectbox(
            "Webhook", list(names), index=None, format_func=names.__getitem__, key="hook-chosen", width=WIDTH_PX
        )
        tested = st.button("Send a test", key="hook-test", disabled=chosen is None, icon=":material/send:")
        removed = st.button("Remove webhook", key="hook-remove", disabled=chosen is None)
    if tested and chosen:
        desk.test_webhook(chosen)
        st.html(markup.notice("green", "check_circle", "The test was taken", "The address answers."))
    if removed and chosen:
        desk.remove_webhook(chosen)
        st.rerun()
