"""Requests that carry a key, so that a repeated one is answered and not carried out again."""

from typing import Any

from sqlalchemy import delete
from sqlalchemy.orm import Mapped, mapped_column

from unifiednn_core.base.errors import BadInput, IllegalTransition
from unifiednn_core.store.database import Repository
from unifiednn_core.store.schema import Base

KEPT_S = 86_400.0
PATIENCE_S = 600.0
"""A request that takes longer than this counts as lost with its process."""


class RequestRow(Base):
    """A request of a person, by the key that the person gave it."""

    __tablename__ = "requests"
    person: Mapped[str] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    sha256: Mapped[str]
    """Of what was asked."""
    answer: Mapped[dict[str, Any] | None]
    """None while it is carried out."""
    at_s: Mapped[float] = mapped_column(index=True)


class Requests(Repository):
    """Remembers answers for a day."""

    def begin(self, person: str, key: str, sha256: str) -> dict[str, Any] | None:
        """The answer that this request got before; None if it is to be carried out now.

        Raises `BadInput` if the key belongs to another request, `IllegalTransition` while the first one goes on.
        """
        now_s = self._clock.utc_s()
        with self._database.write() as session:
            session.execute(delete(RequestRow).where(RequestRow.at_s < now_s - KEPT_S))
            row = session.get(RequestRow, (person, key))
            if row is None or (row.answer is None and row.at_s < now_s - PATIENCE_S):
                session.merge(RequestRow(person=person, key=key, sha256=sha256, answer=None, at_s=now_s))
                return None
            if row.sha256 != sha256:
                message = f"The key '{key[:80]}' was used for another request within a day."
                raise BadInput.of("Key", "Idempotency-Key", message, "Give every new request a key of its own.")
            if row.answer is None:
                raise IllegalTransition(f"The request '{key[:80]}'", "being carried out", "repeat", ["wait"])
            return row.answer

    def answer(self, person: str, key: str, answer: dict[str, Any] | None) -> None:
        """Remember an answer, or with None forget the request because it failed."""
        with self._database.write() as session:
            row = session.get(RequestRow, (person, key))
            if row is not None and answer is None:
                session.delete(row)
            elif row is not None:
                row.answer = answer
