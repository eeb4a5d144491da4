"""People, tokens, settings and the audit log as values, and how a row of the store becomes a value."""

from dataclasses import dataclass, fields
from typing import Any, TypeVar

View = TypeVar("View")


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonView:
    """A person with what an admin gave: the role may be "none", or "" if none was given."""

    person: str
    role: str
    team: str | None
    tickets: int | None
    quota_bytes: int | None = None
    changed_at_s: float
    changed_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingView:
    """Who may share a process, and what that means; without time and name it is the default."""

    sharing: str
    meaning: str
    changed_at_s: float | None = None
    changed_by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenView:
    """A token without its secret."""

    token_id: str
    person: str
    role: str
    created_at_s: float
    created_by: str
    expires_at_s: float
    revoked_at_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditView:
    """One line of the audit log."""

    at_s: float
    person: str
    role: str
    action: str
    subject: str
    outcome: str


def view_of(kind: type[View], row: Any, **named: Any) -> View:
    """The view of a database row: fields of the same name, and `named` for the others."""
    return kind(**{one.name: getattr(row, one.name) for one in fields(kind) if one.name not in named}, **named)  # type: ignore[arg-type]
