"""Webhooks: addresses that hear of the ends of runs, how far each has heard, and the events that concern them."""

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, func, or_, select, update
from sqlalchemy.orm import Mapped, Session, mapped_column

from unifiednn_core.base.errors import NotFound
from unifiednn_core.spec.lifecycle import State
from unifiednn_core.store.database import Repository
from unifiednn_core.store.events import Code
from unifiednn_core.store.schema import Base, EventRow, RunRow

READY: Final = "ready"
"""The trained model of a sub-model can be downloaded."""
OF_RUNS = ("run.completed", "run.failed", "run.interrupted")
EVENTS = (*OF_RUNS, "submodel.completed", "submodel.failed", "submodel.interrupted", f"submodel.{READY}")


class WebhookRow(Base):
    """An address that hears of events."""

    __tablename__ = "webhooks"
    id: Mapped[str] = mapped_column(primary_key=True)
    url: Mapped[str]
    secret: Mapped[str]
    """Signs what is sent, so it is stored as it is."""
    private: Mapped[bool]
    """Whether somebody at the machine added it: then it may lie in a private network."""
    events: Mapped[list[str]]
    created_at_s: Mapped[float]
    created_by: Mapped[str]
    cursor: Mapped[int]
    """Id of the last event that it has heard of, or that was given up."""
    failures: Mapped[int] = mapped_column(default=0)
    """Of the next event."""
    next_at_s: Mapped[float] = mapped_column(default=0.0)
    """UTC time before which nothing is sent: after a failure, or while another process sends."""
    error: Mapped[str | None]
    """Why the last delivery failed; None after a success."""


class Webhooks(Repository):
    """Reads and writes webhooks, and finds what they have to hear."""

    def all(self) -> list[WebhookRow]:
        """All webhooks, the oldest first."""
        return self._rows(select(WebhookRow).order_by(WebhookRow.created_at_s, WebhookRow.id))

    def get(self, webhook_id: str) -> WebhookRow:
        """One webhook; raises `NotFound`."""
        row = self._get(WebhookRow, webhook_id)
        if row is None:
            raise NotFound(f"There is no webhook '{webhook_id}'. List them with: unifiednn webhooks list")
        return row

    def add(self, *, webhook_id: str, url: str, secret: str, private: bool, events: Sequence[str], by: str) -> None:
        """Add a webhook, which hears of what happens from now on."""
        row = WebhookRow(id=webhook_id, url=url, secret=secret, private=private, events=list(events), created_by=by)
        row.created_at_s, row.cursor = self._clock.utc_s(), self.newest_event()
        with self._database.write() as session:
            session.add(row)

    def remove(self, webhook_id: str) -> None:
        """Remove a webhook; raises `NotFound`."""
        row = self.get(webhook_id)
        with self._database.write() as session:
            session.delete(session.merge(row))

    def newest_event(self) -> int:
        """Id of the newest event of any run; 0 before the first."""
        return self._value(select(func.max(EventRow.id))) or 0

    def next_for(self, hook: WebhookRow) -> tuple[EventRow, RunRow] | None:
        """The first event after its cursor that a webhook asked for; an interruption that is over is none."""
        asked = select(EventRow, RunRow).join(RunRow, RunRow.id == EventRow.run_id)
        asked = asked.where(EventRow.id > hook.cursor, RunRow.removed_at_s.is_(None), or_(*map(_is, hook.events)))
        with self._database.read() as session:
            found = session.execute(asked.order_by(EventRow.id).limit(1)).first()
            return None if found is None else (found[0], found[1])

    def update(self, seen: WebhookRow, **columns: Any) -> bool:
        """Set columns of a webhook, unless it was removed or another process was faster; returns whether it did."""
        with self._database.write() as session:
            row = session.get(WebhookRow, seen.id)
            if row is None or (row.cursor, row.next_at_s) != (seen.cursor, seen.next_at_s):
                return False
            row.assign(columns)
        seen.assign(columns)
        return True


def name_of(event: EventRow) -> str:
    """Name of an event: `run.failed`, `submodel.ready`."""
    state = READY if event.code == Code.SEPARATED.value else event.state
    return f"{'run' if event.submodel is None else 'submodel'}.{state}"


def step_back_in(session: Session) -> None:
    """Call where events are deleted, in the same transaction: SQLite gives the largest ids again to later ones."""
    newest = session.scalar(select(func.max(EventRow.id))) or 0
    session.execute(update(WebhookRow).where(WebhookRow.cursor > newest).values(cursor=newest))


def _is(name: str) -> ColumnElement[bool]:
    """Whether an event has this name."""
    kind, _, state = name.partition(".")
    happened: ColumnElement[bool] = (EventRow.code == Code.ENTERED.value) & (EventRow.state == state)
    if state == READY:
        happened = EventRow.code == Code.SEPARATED.value
    elif state == State.INTERRUPTED.value:
        happened &= RunRow.state == state
    return happened & (EventRow.submodel.is_(None) if kind == "run" else EventRow.submodel.is_not(None))
