"""Who may do what, and who did what: roles, tokens, ledger."""

from sqlalchemy import select

from unifiednn_core.clock import Clock
from unifiednn_core.store.database import Database
from unifiednn_core.store.people_schema import LedgerRow, PersonRow, TokenRow


class People:
    """The part of the store that knows people. What a role means is none of its business."""

    def __init__(self, database: Database, clock: Clock):
        self._database, self._clock = database, clock

    def role_of(self, person: str) -> str | None:
        """Role that was given to a person; None where none was."""
        with self._database.read() as session:
            row = session.get(PersonRow, person)
            return None if row is None else row.role

    def all(self) -> list[PersonRow]:
        """Everybody to whom a role was given, in order of their names."""
        with self._database.read() as session:
            return list(session.scalars(select(PersonRow).order_by(PersonRow.id)))

    def give_role(self, person: str, role: str, by: str) -> None:
        """Give a role to a person, in place of the one before."""
        with self._database.write() as session:
            session.merge(PersonRow(id=person, role=role, changed_at_s=self._clock.utc_s(), changed_by=by))

    def forget(self, person: str) -> bool:
        """Take the given role back, so that the identity provider decides again; False where there was none."""
        with self._database.write() as session:
            row = session.get(PersonRow, person)
            if row is not None:
                session.delete(row)
            return row is not None

    def token(self, token_id: str) -> TokenRow | None:
        """A token, also one that has expired."""
        with self._database.read() as session:
            return session.get(TokenRow, token_id)

    def tokens(self) -> list[TokenRow]:
        """All tokens, the newest first."""
        with self._database.read() as session:
            return list(session.scalars(select(TokenRow).order_by(TokenRow.created_at_s.desc(), TokenRow.id)))

    def add_token(self, row: TokenRow) -> None:
        """Keep a new token."""
        with self._database.write() as session:
            session.add(row)

    def revoke(self, token_id: str) -> bool:
        """Let a token count no longer; False where there is none. The first moment of it stays."""
        with self._database.write() as session:
            row = session.get(TokenRow, token_id)
            if row is not None and row.revoked_at_s is None:
                row.revoked_at_s = self._clock.utc_s()
            return row is not None

    def note(self, *, person: str, role: str, action: str, subject: str, outcome: str) -> None:
        """Add a line to the ledger; none is ever changed or taken away."""
        with self._database.write() as session:
            now_s = self._clock.utc_s()
            session.add(
                LedgerRow(at_s=now_s, person=person, role=role, action=action, subject=subject, outcome=outcome)
            )

    def ledger(self, last: int) -> list[LedgerRow]:
        """The newest `last` lines, the newest first."""
        with self._database.read() as session:
            return list(session.scalars(select(LedgerRow).order_by(LedgerRow.id.desc()).limit(last)))
