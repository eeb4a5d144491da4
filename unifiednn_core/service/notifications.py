"""Webhooks of the installation, for admins."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from unifiednn_core.base.clock import Clock
from unifiednn_core.base.errors import BadInput
from unifiednn_core.runtime.webhooks import address_of, deliver, new_secret
from unifiednn_core.service.permissions import Guard, permission
from unifiednn_core.service.roles import Role
from unifiednn_core.store.webhooks import EVENTS as EVENTS
from unifiednn_core.store.webhooks import OF_RUNS as OF_RUNS
from unifiednn_core.store.webhooks import WebhookRow, Webhooks
from unifiednn_core.views.people import view_of

MOST_WEBHOOKS = 20
SHOWN_PATH = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookView:
    """A webhook without its secret. Times are UTC seconds."""

    webhook_id: str
    shown: str
    """Scheme and host of its address, and the beginning of the path: the rest is often a secret."""
    events: tuple[str, ...]
    created_at_s: float
    created_by: str
    error: str | None
    """Why the last delivery failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewWebhook:
    """A webhook that was added; the secret verifies signatures and is shown once."""

    webhook_id: str
    secret: str


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
        if not events or not set(events) <= set(EVENTS):
            raise BadInput.of("Webhook", "events", "An event is unknown, or none is given.", f"Choose from {EVENTS}.")
        here = self.guard.actor.here
        address_of(url, private=here)
        if len(self._webhooks.all()) >= MOST_WEBHOOKS:
            raise BadInput.of("Webhook", "url", f"There are {MOST_WEBHOOKS} already.", "Remove one first.")
        made = NewWebhook(webhook_id=secrets.token_hex(4), secret=new_secret())
        chosen, by = [event for event in EVENTS if event in events], self.guard.actor.label
        self._webhooks.add(webhook_id=made.webhook_id, url=url, secret=made.secret, private=here, events=chosen, by=by)
        return made

    @permission(Role.ADMIN, about="{webhook_id}")
    def remove_webhook(self, webhook_id: str) -> None:
        """Send nothing more to an address; raises `NotFound`."""
        self._webhooks.remove(webhook_id)

    @permission(Role.ADMIN, about="{webhook_id}")
    def test_webhook(self, webhook_id: str) -> None:
        """Send a document that says it is a test, now; raises `NotFound`, and `BadInput` if it is not taken."""
        text = "A test of UnifiedNN: this webhook works."
        document = {"id": f"test-{secrets.token_hex(6)}", "event": "test", "text": text}
        deliver(self._webhooks.get(webhook_id), document, self._clock.utc_s())


def _view(row: WebhookRow) -> WebhookView:
    asked = urlsplit(row.url)
    path = asked.path if len(asked.path) <= SHOWN_PATH else f"{asked.path[:SHOWN_PATH]}…"
    shown = f"{asked.scheme}://{asked.netloc.rpartition('@')[2]}{path}{'?…' if asked.query else ''}"
    return view_of(WebhookView, row, webhook_id=row.id, shown=shown, events=tuple(row.events))
