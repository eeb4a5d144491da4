"""People for an admin: roles, teams, tickets, who may share a process, tokens for terminals, and the audit log.

A token is shown once, stored as a hash, limited in time, and revocable.
"""

import csv
import hashlib
import hmac
import secrets
from dataclasses import replace
from datetime import UTC, datetime
from io import StringIO

from unifiednn_core.base.clock import Clock
from unifiednn_core.base.errors import BadInput, NotFound, Unauthorised
from unifiednn_core.base.paths import Home
from unifiednn_core.base.visible import cell
from unifiednn_core.service.doctor import Check, protections_of
from unifiednn_core.service.permissions import Guard, permission
from unifiednn_core.service.roles import NO_ROLE, Actor, Role
from unifiednn_core.spec.run import person_id
from unifiednn_core.spec.sharing import Sharing
from unifiednn_core.store.people import QUOTA, SHARING, People, TokenRow
from unifiednn_core.views.people import AuditView, PersonView, SharingView, TokenView, view_of

SHOWN_LINES, CSV_LINES = 500, 100_000
PREFIX = "unn"
SECRET_BYTES = 32
DAY_S = 86_400
LONGEST_DAYS = 3650
LONGEST_TEAM = 100
MOST_TICKETS = 1000
MOST_BYTES = 2**60
# Compared for an unknown token, so the answer takes equally long.
_NO_SHA256 = hashlib.sha256(b"").hexdigest()


class PeopleService:
    """Manages roles, teams, tickets, tokens and who may share a process; shows protections and the audit log."""

    def __init__(self, guard: Guard, home: Home, people: People, clock: Clock):
        self.guard, self._home = guard, home
        self._people, self._tokens = people, Tokens(people, clock)

    @permission(Role.ADMIN, audited=False)
    def people(self) -> tuple[PersonView, ...]:
        """All people with a given role, team or tickets."""
        return tuple(view_of(PersonView, row, person=row.id) for row in self._people.all())

    @permission(Role.ADMIN, about="{person} {role}")
    def give_role(self, person: str, role: str) -> None:
        """Give a role, or "none", to the person of an e-mail address; raises `BadInput`, also for one's own role."""
        _require_address(person)
        given = role if role == NO_ROLE else Role.of(role).value
        self._require_another(person)
        self._people.give(person_id(person), self.guard.actor.label, role=given)

    @permission(Role.ADMIN, about="{person}")
    def forget_person(self, person: str) -> None:
        """Remove a given role: the identity provider decides again. Raises `NotFound`."""
        self._require_another(person)
        if not self._people.forget(person_id(person), self.guard.actor.label):
            raise NotFound(f"'{person}' was given no role. List the given ones with: unifiednn people list")

    @permission(Role.ADMIN, about="{person} {team}")
    def give_team(self, person: str, team: str) -> None:
        """Put a person into a team, out of an earlier one; "" means no team. Case does not count. Raises `BadInput`."""
        _require_address(person)
        name = " ".join(team.lower().split())
        if len(name) > LONGEST_TEAM:
            message, remedy = f"The name has {len(name)} characters.", f"Give at most {LONGEST_TEAM}."
            raise BadInput.of("Team", "team", message, remedy)
        self._people.give(person_id(person), self.guard.actor.label, team=name or None)

    @permission(Role.ADMIN, about="{person} {tickets}")
    def give_tickets(self, person: str, tickets: int) -> None:
        """Give a person this many shares of the device under the policy `fair`, instead of 1. Raises `BadInput`.

        A run that trains follows it from its next start on.
        """
        _require_address(person)
        if not 1 <= tickets <= MOST_TICKETS:
            message, remedy = f"{tickets} is not a valid number of tickets.", f"Give 1 to {MOST_TICKETS}."
            raise BadInput.of("Tickets", "tickets", message, remedy)
        given = None if tickets == 1 else tickets
        self._people.give(person_id(person), self.guard.actor.label, tickets=given)

    @permission(Role.ADMIN, audited=False)
    def sharing(self) -> SharingView:
        """Who may share a process."""
        row, sharing = self._people.setting(SHARING), self._people.sharing_rule().sharing
        told = SharingView(sharing=sharing.value, meaning=sharing.meaning)
        return told if row is None else replace(told, changed_at_s=row.changed_at_s, changed_by=row.changed_by)

    @permission(Role.ADMIN, about="{sharing}")
    def set_sharing(self, sharing: str) -> None:
        """Set who may share a process: submissions, additions and starts follow it from now on. Raises `BadInput`."""
        self._people.set_setting(SHARING, Sharing.of(sharing).value, self.guard.actor.label)

    @permission(Role.ADMIN, audited=False)
    def tokens(self) -> tuple[TokenView, ...]:
        """All tokens, the newest first."""
        return tuple(view_of(TokenView, row, token_id=row.id) for row in self._people.tokens())

    @permission(Role.ADMIN, about="{person} {role}, {days:g} days")
    def create_token(self, person: str, role: str, days: float) -> str:
        """Create a token for a person and return it; it cannot be read again. Raises `BadInput`."""
        return self._tokens.create(person, Role.of(role), days, self.guard.actor.label)

    @permission(Role.ADMIN, about="{token_id}")
    def revoke_token(self, token_id: str) -> None:
        """Revoke a token; raises `NotFound`."""
        if not self._people.revoke(token_id):
            raise NotFound(f"There is no token '{token_id}'. List them with: unifiednn token list")

    @permission(Role.ADMIN, audited=False)
    def audit(
        self, last: int = SHOWN_LINES, *, skip: int = 0, person: str = "", action: str = "", text: str = ""
    ) -> tuple[AuditView, ...]:
        """The newest lines of the audit log after `skip` newer ones, the newest first.

        Only of a `person`, of an `action`, or with a `text` in them, if given.
        """
        rows = self._people.audit_log(last, skip=skip, person=person, action=action, text=text)
        return tuple(view_of(AuditView, row) for row in rows)

    @permission(Role.ADMIN, audited=False)
    def audit_lines(self, *, person: str = "", action: str = "", text: str = "") -> int:
        """How many lines `audit` has in all."""
        return self._people.audit_lines(person=person, action=action, text=text)

    @permission(Role.ADMIN, audited=False)
    def audited_names(self) -> tuple[list[str], list[str]]:
        """All people and all actions of the audit log."""
        return self._people.audited_names()

    @permission(Role.ADMIN, about="{text}")
    def audit_csv(self, *, person: str = "", action: str = "", text: str = "") -> str:
        """The newest of these lines as CSV text, with times in ISO 8601, UTC."""
        rows = self._people.audit_log(CSV_LINES, person=person, action=action, text=text)
        written = StringIO()
        writer = csv.writer(written)
        writer.writerow(("time", "person", "role", "action", "subject", "outcome"))
        for row in rows:
            moment = datetime.fromtimestamp(row.at_s, UTC).isoformat(timespec="seconds")
            writer.writerow((moment, *map(cell, (row.person, row.role, row.action, row.subject, row.outcome))))
        return written.getvalue()

    @permission(Role.ADMIN, about="{person} {quota_bytes}")
    def set_quota(self, quota_bytes: int | None, person: str = "") -> None:
        """Limit what the files of a person may take, or of everybody without a person; None lifts the limit.

        Uploads and imports beyond it are refused; what is there stays. Raises `BadInput`.
        """
        if quota_bytes is not None and not 0 < quota_bytes <= MOST_BYTES:
            raise BadInput.of("Quota", "quota", f"A quota cannot be {quota_bytes:,} bytes.", "Give 1 MiB or more.")
        by = self.guard.actor.label
        if person.strip():
            self._people.give(person_id(person), by, quota_bytes=quota_bytes)
        else:
            self._people.set_setting(QUOTA, "" if quota_bytes is None else str(quota_bytes), by)

    @permission(Role.ADMIN, audited=False)
    def default_quota(self) -> int | None:
        """Most bytes of the files of a person who has no quota of their own; None without a limit."""
        row = self._people.setting(QUOTA)
        return int(row.value) if row is not None and row.value else None

    @permission(Role.ADMIN, audited=False)
    def protections(self) -> tuple[Check, ...]:
        """What this machine does to keep people and networks apart."""
        return protections_of(self._home)

    def _require_another(self, person: str) -> None:
        """Refuse to change the actor's own role, so the last admin stays one."""
        if person_id(person) == self.guard.actor.id:
            remedy = "Ask another admin, or run on the server: unifiednn people give"
            raise BadInput.of("Person", "person", "This is your own role.", remedy)


class Tokens:
    """Creates tokens, and returns their actors."""

    def __init__(self, people: People, clock: Clock):
        self._people, self._clock = people, clock

    def create(self, person: str, role: Role, days: float, by: str) -> str:
        """Create a token and return it; it cannot be read again. Raises `BadInput` for a wrong time or person."""
        if not 0 < days <= LONGEST_DAYS:
            raise BadInput.of("Days", "days", f"A token cannot last {days:g} days.", f"Give 1 to {LONGEST_DAYS}.")
        if not person.strip():
            raise BadInput.of("Person", "for", "The person is empty.", "Give a name or e-mail address.")
        token_id, secret = secrets.token_hex(6), secrets.token_urlsafe(SECRET_BYTES)
        now_s = self._clock.utc_s()
        row = TokenRow(id=token_id, person=person_id(person), role=role.value, secret_sha256=_sha256(secret))
        row.created_at_s, row.created_by, row.expires_at_s = now_s, by, now_s + days * DAY_S
        self._people.add_token(row)
        return f"{PREFIX}_{token_id}_{secret}"

    def actor(self, token: str) -> Actor:
        """The person of a token; raises `Unauthorised` if it is unknown, expired or revoked."""
        prefix, _, rest = token.partition("_")
        token_id, _, secret = rest.partition("_")
        row = self._people.token(token_id)
        known = hmac.compare_digest(_sha256(secret), _NO_SHA256 if row is None else row.secret_sha256)
        if prefix != PREFIX or row is None or not known:
            raise Unauthorised("This token is unknown. Ask an admin for a new one.")
        if row.revoked_at_s is not None:
            raise Unauthorised("This token was revoked. Ask an admin for a new one.")
        if self._clock.utc_s() >= row.expires_at_s:
            raise Unauthorised("This token has expired. Ask an admin for a new one.")
        return Actor(id=row.person, name=row.person, role=self._role(row))

    def _role(self, row: TokenRow) -> Role:
        """Role of the token, at most the role that its person was given."""
        role, given = Role(row.role), self._people.role_of(row.person)
        if given == NO_ROLE:
            raise Unauthorised("The person of this token has no role here any more. Ask an admin.")
        return role if given is None else min(role, Role(given), key=lambda one: one.rank)


def _require_address(person: str) -> None:
    if not person.strip():
        raise BadInput.of("Person", "person", "The address is empty.", "Give an e-mail address.")


def _sha256(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
