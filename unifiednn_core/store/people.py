"""Roles, teams, tickets, tokens, who may share a process, and the audit log."""

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import DDL, Select, delete, event, func, or_, select
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Mapped, Session, mapped_column

from unifiednn_core.base.errors import BadInput, IllegalTransition
from unifiednn_core.base.trouble import is_disk_full
from unifiednn_core.spec.lifecycle import ENDED, State
from unifiednn_core.spec.sharing import Party, Sharing, SharingRule
from unifiednn_core.store.database import Database, Repository
from unifiednn_core.store.schema import Base, RunRow, SubModelRow, distinct

MOST_WAITING = 1000
SHARING = "sharing"
"""Setting: who may share a process from the next start on."""
QUOTA = "quota_bytes"
"""Setting: most bytes of one person's files; empty without a limit."""


class PersonRow(Base):
    """What an admin gave to a person: a role, a team, tickets, or several of them."""

    __tablename__ = "people"
    id: Mapped[str] = mapped_column(primary_key=True)
    """E-mail address in lower case, or another id."""
    role: Mapped[str]
    """Overrides the identity provider, also if it is "none"; "" leaves it to the identity provider."""
    team: Mapped[str | None]
    """People of one team may share a process."""
    tickets: Mapped[int | None]
    """Share of the device under the policy `fair`; 1 if none are given."""
    quota_bytes: Mapped[int | None]
    """Most that a person's files may take, instead of the quota of everybody."""
    changed_at_s: Mapped[float]
    changed_by: Mapped[str]


class SettingRow(Base):
    """A setting of the whole installation that an admin changed."""

    __tablename__ = "settings"
    name: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[str]
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
    person: Mapped[str] = mapped_column(index=True)
    role: Mapped[str]
    action: Mapped[str] = mapped_column(index=True)
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
    event.listen(AuditRow.__table__, "after_create", DDL(_trigger))  # type: ignore[no-untyped-call]


class People(Repository):
    """Reads and writes what admins decide, and the audit log; the service gives roles their meaning."""

    def __init__(self, database: Database):
        super().__init__(database)
        self._noting = threading.Lock()
        self._unwritten: list[dict[str, Any]] = []
        """Lines of the audit log that wait for room on the disk."""

    def role_of(self, person: str) -> str | None:
        """Role that an admin gave to a person, or None."""
        row = self._get(PersonRow, person)
        return None if row is None else row.role or None

    def all(self) -> list[PersonRow]:
        """All people who were given something, by id."""
        return self._rows(select(PersonRow).order_by(PersonRow.id))

    def give(self, person: str, by: str, **columns: str | int | None) -> None:
        """Give a role, team, tickets or quota to a person, in place of an earlier one; "" and None take it away."""
        with self._database.write() as session:
            self._give(session, person, by, **columns)

    def tickets_of(self, person: str) -> int:
        """Share of a person under the policy `fair`."""
        row = self._get(PersonRow, person)
        return 1 if row is None else row.tickets or 1

    def forget(self, person: str, by: str) -> bool:
        """Remove a given role: the identity provider decides again. False if no role was given."""
        with self._database.write() as session:
            row = session.get(PersonRow, person)
            given = row is not None and row.role != ""
            if given:
                self._give(session, person, by, role="")
            return given

    def _give(self, session: Session, person: str, by: str, **columns: str | int | None) -> None:
        row = session.get(PersonRow, person) or PersonRow(id=person, role="", team=None, tickets=None, quota_bytes=None)
        row.assign({**columns, "changed_at_s": self._clock.utc_s(), "changed_by": by})
        if row.role or (row.team, row.tickets, row.quota_bytes) != (None, None, None):
            session.add(row)
        elif row in session:
            session.delete(row)

    def quota_of(self, person: str) -> int | None:
        """Most bytes that a person's files may take; None without a limit."""
        with self._database.read() as session:
            row, everybody = session.get(PersonRow, person), session.get(SettingRow, QUOTA)
            own = None if row is None else row.quota_bytes
            return (
                own if own is not None else None if everybody is None or not everybody.value else int(everybody.value)
            )

    def setting(self, name: str) -> SettingRow | None:
        """A setting of the installation; None if nobody has changed it."""
        return self._get(SettingRow, name)

    def set_setting(self, name: str, value: str, by: str) -> None:
        """Change a setting of the installation."""
        with self._database.write() as session:
            session.merge(SettingRow(name=name, value=value, changed_at_s=self._clock.utc_s(), changed_by=by))

    def sharing_rule(self) -> SharingRule:
        """Who may share a process now."""
        with self._database.read() as session:
            return sharing_rule_in(session)

    def token(self, token_id: str) -> TokenRow | None:
        """A token, also an expired one; None for an unknown id."""
        return self._get(TokenRow, token_id)

    def tokens(self) -> list[TokenRow]:
        """All tokens, the newest first."""
        return self._rows(select(TokenRow).order_by(TokenRow.created_at_s.desc(), TokenRow.id))

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
        """Add a line to the audit log; lines are never changed or removed.

        While the disk is full, the newest `MOST_WAITING` lines wait for room, so that people can still read.
        """
        line = {"person": person, "role": role, "action": action, "subject": subject, "outcome": outcome}
        with self._noting:
            lines = [*self._unwritten, {"at_s": self._clock.utc_s(), **line}]
            try:
                with self._database.write() as session:
                    session.add_all(AuditRow(**line) for line in lines)
                self._unwritten = []
            except OperationalError as error:
                if not is_disk_full(error):
                    raise
                self._unwritten = lines[-MOST_WAITING:]

    def audit_log(self, last: int, *, skip: int = 0, **wanted: str) -> list[AuditRow]:
        """The newest `last` lines after `skip` newer ones, the newest first; `wanted` as for `audit_lines`."""
        found = _audited(select(AuditRow), wanted).order_by(AuditRow.id.desc())
        return self._rows(found.limit(last).offset(skip))

    def audit_lines(self, **wanted: str) -> int:
        """Number of lines whose `person` and `action` are these and that hold `text`; empty ones do not filter."""
        return self._value(_audited(select(func.count()).select_from(AuditRow), wanted)) or 0

    def audited_names(self) -> tuple[list[str], list[str]]:
        """All people and all actions in the log."""
        with self._database.read() as session:
            return distinct(session, AuditRow.person), distinct(session, AuditRow.action)


def _audited(asked: Select[Any], wanted: Mapping[str, str]) -> Select[Any]:
    for column in (AuditRow.person, AuditRow.action):
        if value := wanted.get(column.key):
            asked = asked.where(column == value)
    if text := wanted.get("text"):
        columns = (AuditRow.person, AuditRow.action, AuditRow.subject, AuditRow.outcome)
        asked = asked.where(or_(*(column.icontains(text, autoescape=True) for column in columns)))
    return asked


def sharing_rule_in(session: Session) -> SharingRule:
    """Who may share a process, inside the caller's transaction."""
    row = session.get(SettingRow, SHARING)
    teams = {one.id: one.team for one in session.scalars(select(PersonRow)) if one.team is not None}
    return SharingRule(teams=teams) if row is None else SharingRule(Sharing(row.value), teams)


def parties_of(run: RunRow, rows: Sequence[SubModelRow]) -> list[Party]:
    """People in the process of a run, or in the one that would start for it now.

    A living worker may still hold in its memory what has ended there; a new one loads only what has not.
    """
    alive = run.hybrid is not None and run.hybrid.heartbeat_at_s is not None
    inside = [row for row in rows if alive or State(row.state) not in ENDED]
    return [Party(person, f"submodels.{row.name}") for row in inside for person in (row.owner, *row.lenders)]


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
