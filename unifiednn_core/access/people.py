"""Who a signed-in person is here: from the claims of the identity provider, and from roles that admins gave."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from unifiednn_core.access.roles import NO_ROLE, SUBJECT, Actor, Role, person_id
from unifiednn_core.errors import Forbidden, Unauthorised
from unifiednn_core.store.people import People

HOUR_S = 3600
Claims = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How people are known. `login` is whether they have to sign in."""

    login: bool = False
    reachable: bool = False
    """Whether others than this machine can reach the server; then somebody has to sign in."""
    role_claim: str = "groups"
    roles: Mapping[str, Role] = field(default_factory=dict)
    """Role by value of that claim."""
    admins: frozenset[str] = frozenset()
    """Ids (see `person_id`) of those who are admins whatever else is said: the first one needs to be."""
    sign_in_s: float = 12 * HOUR_S
    """For how long a sign-in counts."""


def actor_of(claims: Claims, settings: Settings, people: People, now_s: float) -> Actor:
    """Who is signed in with these claims of an ID token.

    Raises `Unauthorised` where nobody is or the sign-in has become too old, `Forbidden` where this person has no role.
    """
    issued_at_s = claims.get("iat")
    if not claims.get("is_logged_in") or not isinstance(issued_at_s, int | float):
        raise Unauthorised("Nobody is signed in. Sign in first.")
    if not issued_at_s <= now_s + HOUR_S or now_s - issued_at_s >= settings.sign_in_s:
        raise Unauthorised("This sign-in has expired. Sign in again.")
    person = _id_of(claims)
    role = _role_of(person, claims, settings, people)
    if role is None:
        raise Forbidden(f"{person} has no role here. Ask an admin for one.")
    return Actor(id=person, name=str(claims.get("name") or person), role=role)


def _id_of(claims: Claims) -> str:
    email = claims.get("email")
    if isinstance(email, str) and _is_address(person_id(email)) and claims.get("email_verified") is not False:
        return person_id(email)
    subject = claims.get("sub")
    if not isinstance(subject, str) or not subject:
        raise Unauthorised("The identity provider names nobody. It has to send an e-mail address or a subject.")
    return f"{SUBJECT}{subject}"


def _is_address(text: str) -> bool:
    return "@" in text and not text.startswith(SUBJECT)


def _role_of(person: str, claims: Claims, settings: Settings, people: People) -> Role | None:
    """Role of a person: an admin by the settings, else the one that was given, else the highest by the claim."""
    if person in settings.admins:
        return Role.ADMIN
    given = people.role_of(person)
    if given is not None:
        return None if given == NO_ROLE else Role(given)
    said = claims.get(settings.role_claim, ())
    values = [said] if isinstance(said, str) else said if isinstance(said, list | tuple) else []
    found = [settings.roles[value] for value in values if isinstance(value, str) and value in settings.roles]
    return max(found, key=lambda role: role.rank, default=None)
