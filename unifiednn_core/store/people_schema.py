"""The tables about people: their roles, their tokens, and the ledger of what they did, which only ever grows."""

from sqlalchemy import DDL, event
from sqlalchemy.orm import Mapped, mapped_column

from unifiednn_core.store.schema import Base


class PersonRow(Base):
    """Role that an admin gave to a person; "none" takes away whatever the identity provider says."""

    __tablename__ = "people"
    id: Mapped[str] = mapped_column(primary_key=True)
    """E-mail address in lower case, or what else the person is known by."""
    role: Mapped[str]
    changed_at_s: Mapped[float]
    changed_by: Mapped[str]


class TokenRow(Base):
    """A token; of its secret only the SHA-256 is kept."""

    __tablename__ = "tokens"
    id: Mapped[str] = mapped_column(primary_key=True)
    person: Mapped[str]
    role: Mapped[str]
    secret_sha256: Mapped[str]
    created_at_s: Mapped[float]
    created_by: Mapped[str]
    expires_at_s: Mapped[float]
    revoked_at_s: Mapped[float | None]


class LedgerRow(Base):
    """Something that a person did or tried to do."""

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
    _ddl = DDL(_trigger).execute_if(dialect="sqlite")  # type: ignore[no-untyped-call]  # SQLAlchemy types it not
    event.listen(LedgerRow.__table__, "after_create", _ddl)
