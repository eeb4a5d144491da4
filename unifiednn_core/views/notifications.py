"""Webhooks as frozen values."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookView:
    """A webhook without its secret. Times are UTC seconds."""

    webhook_id: str
    shown: str
    """Scheme and host of its address, and the beginning of the path: the rest is often a secret."""
    events: tuple[str, ...]
    created_at_s: float
    created_by: str
    failures: int
    """Deliveries that failed since the last one that was taken."""
    answered_at_s: float | None
    error: str | None
    """Why the last delivery failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewWebhook:
    """A webhook that was added."""

    webhook_id: str
    secret: str
    """Verifies signatures; it is shown once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookTest:
    """What came of a test."""

    taken: bool
    error: str | None
