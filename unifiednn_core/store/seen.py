"""Which failures a person has looked at, and which of them are not to be shown to this person any more."""

from sqlalchemy import ForeignKeyConstraint, select
from sqlalchemy.orm import Mapped, mapped_column

from unifiednn_core.store.database import Repository
from unifiednn_core.store.runs import run_of
from unifiednn_core.store.schema import Base


class SeenRow(Base):
    """A failure that a person has seen."""

    __tablename__ = "seen_failures"
    __table_args__ = (ForeignKeyConstraint(["run_id"], ["runs.id"], ondelete="CASCADE"),)
    person: Mapped[str] = mapped_column(primary_key=True)
    """"" is the local operator."""
    run_id: Mapped[str] = mapped_column(primary_key=True, index=True)
    at_s: Mapped[float]
    dismissed: Mapped[bool] = mapped_column(default=False)


class Seen(Repository):
    """What people have seen."""

    def of(self, person: str) -> dict[str, tuple[float, bool]]:
        """By run, when a person last saw its failures, and whether they were dismissed then."""
        rows = self._rows(select(SeenRow).where(SeenRow.person == person))
        return {row.run_id: (row.at_s, row.dismissed) for row in rows}

    def note(self, person: str, run_id: str, *, dismissed: bool) -> None:
        """Record that a person has seen the failures of a run; raises `NotFound`."""
        with self._database.write() as session:
            run_of(session, run_id)
            row = session.get(SeenRow, (person, run_id)) or SeenRow(person=person, run_id=run_id, dismissed=False)
            row.at_s, row.dismissed = self._clock.utc_s(), row.dismissed or dismissed
            session.add(row)
