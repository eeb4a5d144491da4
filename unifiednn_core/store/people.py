"""Roles, tokens and the audit log."""

from sqlalchemy import DDL, event, select
from sqlalchemy.orm import Mapped, mapped_column

from unifiednn_core.base.clock import Clock
from unifiednn_core.store.database import Database
from unifiednn_core.store.schema import Base


class PersonRow(Base):
    """Role that an admin gave to a person; it overrides the identity provider, also if it is "none"."""

    __tablename__ = "people"
    id: Mapped[str] = mapped_column(primary_key=True)
    """E-mail address in lower case, or another id."""
    role: Mapped[str]
    changed_at_s: Mapped[float]
    changed_by: Mapped[str]


class TokenRow(Base):
    """A token; only the SHA-256 of its secret is stored."""

    __tablename__ = "tokens"
    id: Mapped[str] = mapped_column(primary_key=True)
    person: Mapped[str]
    role: Mapped[str]
    secret_sha256: Mapped[str]
    created_at_s: Mapped[float]
    created_by: Mapped[str]
    expires_at_s: Mapped[float]
    revoked_at_s: Mapped[float | None]


class AuditRow(Base):
    """One line of the audit log: an action of a person, allowed or refused."""

    __tablename__ = "ledger"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    at_s: Mapped[float]
    person: Mapped[str]
    role: Mapped[str]
    action: Mapped[str]
    subject: Mapped[str]
    outcome: Mapped[str]


_REFUSE = "BEGIN SELECT RAISE(ABORT, 'The ledger only grows.'); END"
_TRIGGERS = (
    f"CREATE TRIGGER ledger_keeps_rows BEFORE DELETE ON ledger {_REFUSE}",
    f"CREATE TRIGGER ledger_keeps_words BEFORE UPDATE ON ledger {_REFUSE}",
    # INSERT OR REPLACE deletes without firing the trigger for deletions.
    "CREATE TRIGGER ledger_replaces_nothing BEFORE INSERT ON ledger "
    f"WHEN EXISTS (SELECT 1 FROM ledger WHERE id = NEW.id) {_REFUSE}",
)
for _trigger in _TRIGGERS:
    _ddl = DDL(_trigger).execute_if(dialect="sqlite")  # type: ignore[no-untyped-call]
    event.listen(AuditRow.__table__, "after_create", _ddl)


class People:
    """Reads and writes roles, tokens and the audit log; the service gives roles their meaning."""

    def __init__(self, database: Database, clock: Clock):
        self._database, self._clock = database, clock

    def role_of(self, person: str) -> str | None:
        """Role that an admin gave to a person, or None."""
        with self._database.read() as session:
            row = session.get(PersonRow, person)
            return None if row is None else row.role

    def all(self) -> list[PersonRow]:
        """All people with a given role, by id."""
        with self._database.read() as session:
            return list(session.scalars(select(PersonRow).order_by(PersonRow.id)))

    def give_role(self, person: str, role: str, by: str) -> None:
        """Give a role to a person; replaces an earlier one."""
        with self._database.write() as session:
            session.merge(PersonRow(id=person, role=role, changed_at_s=self._clock.utc_s(), changed_by=by))

    def forget(self, person: str) -> bool:
        """Remove a given role: the identity provider decides again. False if no role was given."""
        with self._database.write() as session:
            row = session.get(PersonRow, person)
            if row is not None:
                session.delete(row)
            return row is not None

    def token(self, token_id: str) -> TokenRow | None:
        """A token, also an expired one; None for an unknown id."""
        with self._database.read() as session:
            return session.get(TokenRow, token_id)

    def tokens(self) -> list[TokenRow]:
        """All tokens, the newest first."""
        with self._database.read() as session:
            return list(session.scalars(select(TokenRow).order_by(TokenRow.created_at_s.desc(), TokenRow.id)))

    def add_token(self, row: TokenRow) -> None:
        """Store a new token."""
        with self._database.write() as session:
            session.add(row)

    def revoke(self, token_id: str) -> bool:
        """Revoke a token; idempotent. False for an unknown id."""
        with self._database.write() as session:
            row = session.get(TokenRow, token_id)
            if row is not None and row.revoked_at_s is None:
                row.revoked_at_s = self._clock.utc_s()
            return row is not None

    def note(self, *, person: str, role: str, action: str, subject: str, outcome: str) -> None:
        """Add a line to the audit log; lines are never changed or removed."""
        with self._database.write() as session:
            now_s = self._clock.utc_s()
            session.add(AuditRow(at_s=now_s, person=person, role=role, action=action, subject=subject, outcome=outcome))

    def audit_log(self, last: int) -> list[AuditRow]:
        """The newest `last` lines, the newest first."""
        with self._database.read() as session:
            return list(session.scalars(select(AuditRow).order_by(AuditRow.id.desc()).limit(last)))
