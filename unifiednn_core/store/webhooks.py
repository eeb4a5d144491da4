"""Webhooks: addresses that hear of the ends of runs, how far each has heard, and the events that concern them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import func, select, update
from sqlalchemy.orm import Mapped, Session, aliased, mapped_column

from unifiednn_core.base.clock import Clock
from unifiednn_core.base.errors import NotFound
from unifiednn_core.spec.lifecycle import State
from unifiednn_core.store.database import Database
from unifiednn_core.store.events import Code
from unifiednn_core.store.schema import Base, EventRow, RunRow

TOLD: Final = (State.COMPLETED, State.FAILED, State.INTERRUPTED)
"""Ends that people hear of; who stops a run knows it."""
SAME_MOMENT_S = 1.0
"""A run that is queued again so soon after its worker died recovers by itself."""
MOST_AT_ONCE = 50


class WebhookRow(Base):
    """An address that hears of events."""

    __tablename__ = "webhooks"
    id: Mapped[str] = mapped_column(primary_key=True)
    url: Mapped[str]
    secret: Mapped[str]
    """Signs what is sent, so it is stored as it is."""
    events: Mapped[list[str]]
    """`run.failed` and the like."""
    created_at_s: Mapped[float]
    created_by: Mapped[str]
    cursor: Mapped[int]
    """Id of the last event that it has heard of, or that was given up."""
    failures: Mapped[int] = mapped_column(default=0)
    """In a row."""
    next_at_s: Mapped[float] = mapped_column(default=0.0)
    """UTC time before which nothing is sent: back-off, or another process is sending."""
    answered_at_s: Mapped[float | None]
    """When it last took something."""
    error: Mapped[str | None]
    """Why the last attempt failed; None after a success."""


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """A run or sub-model that reached an end."""

    id: int
    """Of the event."""
    run_id: str
    run_name: str
    mode: str
    submodel: str | None
    state: str
    """`completed`, `failed`, `interrupted`; `ready` if the trained model of a sub-model can be downloaded."""
    cause: str | None
    at_s: float

    @property
    def event(self) -> str:
        """Name of the event: `run.failed`, `submodel.ready`."""
        return f"{'run' if self.submodel is None else 'submodel'}.{self.state}"


READY: Final = "ready"
OF_RUNS = tuple(f"run.{state.value}" for state in TOLD)
EVENTS = (*OF_RUNS, *(f"submodel.{state.value}" for state in TOLD), f"submodel.{READY}")


class Webhooks:
    """Reads and writes webhooks, and reads ends of runs."""

    def __init__(self, database: Database, clock: Clock):
        self._database, self._clock = database, clock

    def all(self) -> list[WebhookRow]:
        """All webhooks, the oldest first."""
        with self._database.read() as session:
            return list(session.scalars(select(WebhookRow).order_by(WebhookRow.created_at_s, WebhookRow.id)))

    def get(self, webhook_id: str) -> WebhookRow:
        """One webhook; raises `NotFound`."""
        with self._database.read() as session:
            row = session.get(WebhookRow, webhook_id)
        if row is None:
            raise NotFound(f"There is no webhook '{webhook_id}'. List them with: unifiednn webhooks list")
        return row

    def add(self, *, webhook_id: str, url: str, secret: str, events: Sequence[str], by: str) -> WebhookRow:
        """Add a webhook, which hears of what happens from now on."""
        row = WebhookRow(id=webhook_id, url=url, secret=secret, events=list(events), created_by=by)
        row.created_at_s = self._clock.utc_s()
        with self._database.write() as session:
            row.cursor = session.scalar(select(func.max(EventRow.id))) or 0
            session.add(row)
        return row

    def remove(self, webhook_id: str) -> None:
        """Remove a webhook; raises `NotFound`."""
        row = self.get(webhook_id)
        with self._database.write() as session:
            session.delete(session.merge(row))

    def newest_event(self) -> int:
        """Id of the newest event of any run; 0 before the first."""
        with self._database.read() as session:
            return session.scalar(select(func.max(EventRow.id))) or 0

    def ends(self, after: int) -> list[End]:
        """Ends after an event, oldest first, at most `MOST_AT_ONCE`.

        A run whose worker died and that goes on by itself has not ended.
        """
        later = aliased(EventRow)
        again = select(later.id).where(
            later.run_id == EventRow.run_id,
            later.submodel.is_not_distinct_from(EventRow.submodel),
            later.id > EventRow.id,
            later.state == State.QUEUED.value,
            later.at_s < EventRow.at_s + SAME_MOMENT_S,
        )
        asked = select(EventRow, RunRow.name, RunRow.mode).join(RunRow, RunRow.id == EventRow.run_id)
        ended = (EventRow.code == Code.ENTERED.value) & EventRow.state.in_([state.value for state in TOLD])
        ended &= (EventRow.state != State.INTERRUPTED.value) | ~again.exists()
        asked = asked.where(
            RunRow.removed_at_s.is_(None), EventRow.id > after, ended | (EventRow.code == Code.SEPARATED.value)
        )
        with self._database.read() as session:
            rows = session.execute(asked.order_by(EventRow.id).limit(MOST_AT_ONCE))
            return [_end(event, name, mode) for event, name, mode in rows]

    def claim(self, webhook_id: str, seen: WebhookRow, until_s: float) -> bool:
        """Keep other processes from sending to a webhook until a moment; False if one was faster."""
        with self._database.write() as session:
            row = session.get(WebhookRow, webhook_id)
            if row is None or (row.cursor, row.next_at_s) != (seen.cursor, seen.next_at_s):
                return False
            row.next_at_s = until_s
            return True

    def update(self, webhook_id: str, **columns: Any) -> None:
        """Set columns of a webhook, unless it was removed meanwhile."""
        with self._database.write() as session:
            if (row := session.get(WebhookRow, webhook_id)) is not None:
                row.assign(columns)


def step_back_in(session: Session) -> None:
    """Call where events are deleted, in the same transaction: SQLite gives the largest ids again to later ones."""
    newest = session.scalar(select(func.max(EventRow.id))) or 0
    session.execute(update(WebhookRow).where(WebhookRow.cursor > newest).values(cursor=newest))


def _end(event: EventRow, name: str, mode: str) -> End:
    return End(
        id=event.id,
        run_id=event.run_id,
        run_name=name,
        mode=mode,
        submodel=event.submodel,
        state=READY if event.code == Code.SEPARATED.value else str(event.state),
        cause=event.fields.get("cause"),
        at_s=event.at_s,
    )
