"""Notifications: webhooks of the installation, for admins."""

import json
import secrets
from collections.abc import Sequence
from urllib.parse import urlsplit

from unifiednn_core.base.clock import Clock
from unifiednn_core.base.errors import BadInput
from unifiednn_core.runtime.delivery import Undelivered, deliver, new_secret, require_allowed
from unifiednn_core.runtime.webhooks import payload
from unifiednn_core.service.permissions import Guard, permission
from unifiednn_core.service.roles import Role
from unifiednn_core.store.webhooks import EVENTS as EVENTS
from unifiednn_core.store.webhooks import OF_RUNS as OF_RUNS
from unifiednn_core.store.webhooks import End, WebhookRow, Webhooks
from unifiednn_core.views.notifications import NewWebhook, WebhookTest, WebhookView
from unifiednn_core.views.people import view_of

MOST_WEBHOOKS = 20
SHOWN_PATH = 8


class NotificationService:
    """Manages webhooks."""

    def __init__(self, guard: Guard, webhooks: Webhooks, clock: Clock):
        self.guard, self._webhooks, self._clock = guard, webhooks, clock

    @permission(Role.ADMIN, audited=False)
    def webhooks(self) -> tuple[WebhookView, ...]:
        """All webhooks, the oldest first."""
        return tuple(map(_view, self._webhooks.all()))

    @permission(Role.ADMIN)
    def add_webhook(self, url: str, events: Sequence[str] = OF_RUNS) -> NewWebhook:
        """Send these events to an address from now on; raises `BadInput`, also for an address that is not allowed."""
        unknown = [event for event in events if event not in EVENTS]
        if unknown or not events:
            message = f"'{unknown[0]}' is no event." if unknown else "No event is given."
            raise BadInput.of("Webhook", "events", message, f"Choose from {', '.join(EVENTS)}.")
        require_allowed(url)
        if len(self._webhooks.all()) >= MOST_WEBHOOKS:
            raise BadInput.of("Webhook", "url", f"There are {MOST_WEBHOOKS} already.", "Remove one first.")
        chosen, secret = tuple(event for event in EVENTS if event in events), new_secret()
        row = self._webhooks.add(
            webhook_id=secrets.token_hex(4), url=url, secret=secret, events=chosen, by=self.guard.actor.label
        )
        return NewWebhook(webhook_id=row.id, secret=secret)

    @permission(Role.ADMIN, about="{webhook_id}")
    def remove_webhook(self, webhook_id: str) -> None:
        """Send nothing more to an address; raises `NotFound`."""
        self._webhooks.remove(webhook_id)

    @permission(Role.ADMIN, about="{webhook_id}")
    def test_webhook(self, webhook_id: str) -> WebhookTest:
        """Send an event that says it is a test, now; raises `NotFound`."""
        row, now_s = self._webhooks.get(webhook_id), self._clock.utc_s()
        end = End(
            id=0, run_id="", run_name="test", mode="hybrid", submodel=None, state="completed", cause=None, at_s=now_s
        )
        message_id = f"test-{secrets.token_hex(6)}"
        told = payload(end) | {"id": message_id, "event": "test", "text": "A test of UnifiedNN: this webhook works."}
        try:
            deliver(row.url, row.secret, message_id, now_s, json.dumps(told).encode())
        except Undelivered as error:
            return WebhookTest(taken=False, error=str(error))
        return WebhookTest(taken=True, error=None)


def _view(row: WebhookRow) -> WebhookView:
    asked = urlsplit(row.url)
    path = asked.path if len(asked.path) <= SHOWN_PATH else f"{asked.path[:SHOWN_PATH]}…"
    shown = f"{asked.scheme}://{asked.netloc}{path}{'?…' if asked.query else ''}"
    return view_of(WebhookView, row, webhook_id=row.id, shown=shown, events=tuple(row.events))
