"""Webhooks, for admins: addresses that receive an event when a run ends."""

from collections.abc import Callable

import streamlit as st

from pages._ui import actions, frame
from unifiednn_core.base.errors import UnifiedNNError
from unifiednn_core.service.notifications import EVENTS, OF_RUNS, NotificationService
from unifiednn_core.views import markup, wording
from unifiednn_core.views.notifications import NewWebhook, WebhookView

LABELS = {
    "run.completed": "Run completed",
    "run.failed": "Run failed",
    "run.interrupted": "Run interrupted",
    "submodel.completed": "Sub-model completed",
    "submodel.failed": "Sub-model failed",
    "submodel.interrupted": "Sub-model interrupted",
    "submodel.ready": "Model ready to download",
}
ABOUT = "An address gets a signed JSON document for each event, which Slack and its like show as a message."
NONE_YET = "Chats, pagers and scripts can hear when a run ends."
WIDTH_PX = 360


def draw() -> None:
    """Draw the form, the list of webhooks, and what can be done with one."""
    desk = frame.service().notifications
    _add(desk)
    found = desk.webhooks()
    if not found:
        st.html(markup.empty("No webhooks yet", NONE_YET))
        return
    _table(found)
    names = {one.webhook_id: f"{one.shown} ({one.webhook_id})" for one in found}
    with st.container(horizontal=True, vertical_alignment="bottom"):
        chosen = st.selectbox(
            "Webhook", list(names), index=None, format_func=names.__getitem__, key="hook-chosen", width=WIDTH_PX
        )
        if st.button("Send a test", key="hook-test", disabled=chosen is None, icon=":material/send:") and chosen:
            _attempt(lambda: _test(desk, chosen))
        if st.button("Remove webhook", key="hook-remove", disabled=chosen is None) and chosen:
            _attempt(lambda: desk.remove_webhook(chosen))
            st.rerun()


def _add(desk: NotificationService) -> None:
    with st.form("hook-new", clear_on_submit=True):
        url = st.text_input("Address", key="hook-url", placeholder="https://", help=ABOUT)
        events = st.multiselect("Events", EVENTS, OF_RUNS, format_func=lambda event: LABELS[event], key="hook-events")
        pressed = st.form_submit_button("Add webhook", type="primary", icon=":material/add:", key="hook-add")
    if pressed:
        _attempt(lambda: _show(desk.add_webhook(url.strip(), events)))


def _table(found: tuple[WebhookView, ...]) -> None:
    table = (
        {
            "Address": one.shown,
            "Last delivery": _last(one),
            "Events": ", ".join(LABELS[event] for event in one.events),
            "Added": frame.ago(one.created_at_s),
            "By": one.created_by,
        }
        for one in found
    )
    looks = {"Address": markup.mono, "Added": markup.faint}
    st.html(markup.table(wording.count_text(len(found), "webhook"), table, looks))


def _last(one: WebhookView) -> str:
    if one.error is not None:
        return f"failed {one.failures} times: {one.error}"
    if one.answered_at_s is None:
        return "nothing was sent yet"
    return f"taken {frame.ago(one.answered_at_s)}"


def _test(desk: NotificationService, webhook_id: str) -> None:
    found = desk.test_webhook(webhook_id)
    if found.taken:
        st.html(markup.notice("green", "check_circle", "The test was taken", "The address answers."))
    else:
        st.html(markup.notice("red", "error", "The test was not taken", found.error or ""))


def _show(made: NewWebhook) -> None:
    text = "It is shown only once. With it the receiver verifies who sent a document (docs/API.md)."
    st.html(markup.notice("green", "key", "Copy the secret now", text))
    st.code(made.secret, language=None)


def _attempt(call: Callable[[], None]) -> None:
    try:
        call()
    except UnifiedNNError as error:
        actions.show_error(error)
