"""Tokens for terminals and routes: shown once, stored as a hash, limited in time, revocable."""

import hashlib
import hmac
import secrets

from unifiednn_core.base.clock import Clock
from unifiednn_core.base.errors import BadInput, Unauthorised
from unifiednn_core.service.roles import NO_ROLE, Actor, Role
from unifiednn_core.spec.run import person_id
from unifiednn_core.store.people import People, TokenRow

PREFIX = "unn"
SECRET_BYTES = 32
DAY_S = 86_400
LONGEST_DAYS = 3650
# Compared for an unknown token, so that the answer takes equally long.
_NO_SHA256 = hashlib.sha256(b"").hexdigest()


class Tokens:
    """Creates tokens and finds the people behind them."""

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
        """Role of the token, but never more than its person was given."""
        role, given = Role(row.role), self._people.role_of(row.person)
        if given == NO_ROLE:
            raise Unauthorised("The person of this token has no role here any more. Ask an admin.")
        return role if given is None else min(role, Role(given), key=lambda one: one.rank)


def _sha256(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
