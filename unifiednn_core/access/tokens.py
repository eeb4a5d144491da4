"""Tokens for the command line and the routes: shown once, kept as a hash, limited in time, revocable."""

import hashlib
import hmac
import secrets
from dataclasses import dataclass

from unifiednn_core.access.roles import NO_ROLE, Actor, Role, person_id
from unifiednn_core.clock import Clock
from unifiednn_core.errors import BadInput, NotFound, Unauthorised
from unifiednn_core.store.people import People
from unifiednn_core.store.people_schema import TokenRow

PREFIX = "unn"
SECRET_BYTES = 32
DAY_S = 86_400
LONGEST_DAYS = 3650
# Compared where there is no such token, so that this takes the same steps.
_NO_SHA256 = hashlib.sha256(b"").hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenView:
    """A token as it is listed; nobody can see its secret again."""

    token_id: str
    person: str
    role: Role
    created_at_s: float
    created_by: str
    expires_at_s: float
    revoked_at_s: float | None


class Tokens:
    """Makes tokens and says whose they are."""

    def __init__(self, people: People, clock: Clock):
        self._people, self._clock = people, clock

    def create(self, person: str, role: Role, days: float, by: str) -> str:
        """A new token, which is told here once; raises `BadInput` for a wrong time or person."""
        if not 0 < days <= LONGEST_DAYS:
            raise BadInput.of(
                "Days", field="days", message=f"{days:g} days are no time.", remedy=f"Give 1 to {LONGEST_DAYS}."
            )
        if not person.strip():
            raise BadInput.of(
                "Person", field="for", message="Nobody is named.", remedy="Give a name or e-mail address."
            )
        token_id, secret = secrets.token_hex(6), secrets.token_urlsafe(SECRET_BYTES)
        now_s = self._clock.utc_s()
        self._people.add_token(
            TokenRow(
                id=token_id,
                person=person_id(person),
                role=role.value,
                secret_sha256=_sha256(secret),
                created_at_s=now_s,
                created_by=by,
                expires_at_s=now_s + days * DAY_S,
            )
        )
        return f"{PREFIX}_{token_id}_{secret}"

    def all(self) -> tuple[TokenView, ...]:
        """All tokens, the newest first."""
        return tuple(_view(row) for row in self._people.tokens())

    def revoke(self, token_id: str) -> None:
        """Let a token count no longer; raises `NotFound`."""
        if not self._people.revoke(token_id):
            raise NotFound(f"There is no token '{token_id}'. List them with: unifiednn token list")

    def actor(self, token: str) -> Actor:
        """Who acts by a token; raises `Unauthorised` where it is unknown, has expired or was revoked."""
        prefix, _, rest = token.partition("_")
        token_id, _, secret = rest.partition("_")
        row = self._people.token(token_id)
        known = hmac.compare_digest(_sha256(secret), _NO_SHA256 if row is None else row.secret_sha256)
        if prefix != PREFIX or row is None or not known:
            raise Unauthorised("This token is not known. Ask an admin for a new one.")
        if row.revoked_at_s is not None:
            raise Unauthorised("This token was revoked. Ask an admin for a new one.")
        if self._clock.utc_s() >= row.expires_at_s:
            raise Unauthorised("This token has expired. Ask an admin for a new one.")
        return Actor(id=row.person, name=row.person, role=self._role(row))

    def _role(self, row: TokenRow) -> Role:
        """Role of the token, and never more than its person was given."""
        role, given = Role(row.role), self._people.role_of(row.person)
        if given == NO_ROLE:
            raise Unauthorised("The person of this token may do nothing here any more. Ask an admin.")
        return role if given is None else min(role, Role(given), key=lambda one: one.rank)


def _sha256(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _view(row: TokenRow) -> TokenView:
    return TokenView(
        token_id=row.id,
        person=row.person,
        role=Role(row.role),
        created_at_s=row.created_at_s,
        created_by=row.created_by,
        expires_at_s=row.expires_at_s,
        revoked_at_s=row.revoked_at_s,
    )
