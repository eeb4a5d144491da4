"""Calls of workers on other machines: each takes effect once, however often it arrives."""

from collections.abc import Callable

from sqlalchemy import LargeBinary
from sqlalchemy.orm import Mapped, mapped_column

from unifiednn_core.store.database import Fence, Repository
from unifiednn_core.store.schema import Base


class AnswerRow(Base):
    """The last numbered call of a hybrid's worker, and what it was answered."""

    __tablename__ = "answers"
    hybrid_id: Mapped[str] = mapped_column(primary_key=True)
    attempt: Mapped[int]
    number: Mapped[int]
    """Counts from 1 in each attempt."""
    answer: Mapped[bytes] = mapped_column(LargeBinary)


class Calls(Repository):
    """Carries out what workers elsewhere ask the store to do."""

    def answer(self, fence: Fence, number: int, call: Callable[[], bytes]) -> bytes:
        """Carry out a call and commit its effect, its number and its answer together; a repeated one is only answered.

        Raises `Fenced` if the worker has lost its hybrid, and whatever the call raises, which then has no effect.
        """
        with self._database.joined() as session:
            row = session.get(AnswerRow, fence.hybrid_id)
            if row is not None and (row.attempt, row.number) == (fence.attempt, number):
                return row.answer
            fence.require(session)
            answer = call()
            made = AnswerRow(hybrid_id=fence.hybrid_id, attempt=fence.attempt, number=number, answer=answer)
            session.merge(made)
            return answer
