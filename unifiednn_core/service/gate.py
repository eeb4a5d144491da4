"""The gate: from the claims, the cookie or the token of a request to the service for its sender."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from unifiednn_core.base.errors import Forbidden, Unauthorised
from unifiednn_core.base.paths import named_hosts
from unifiednn_core.service.facade import Service
from unifiednn_core.service.people import Tokens
from unifiednn_core.service.roles import NO_ROLE, Actor, Role
from unifiednn_core.spec.run import SUBJECT, person_id
from unifiednn_core.store.people import People

BEARER = "bearer"
HOUR_S = 3600
LOCAL_HOSTS = ("127.0.0.1", "localhost")
Claims = Mapping[str, Any]
ReadCookie = Callable[[Mapping[str, str], Mapping[str, str]], Claims]
"""Returns the claims of the signed-in person from headers and cookies of a request; empty without a sign-in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How people sign in, and which roles they get."""

    login: bool = False
    """Whether people have to sign in."""
    reachable: bool = False
    """Whether other machines can reach the server; then people must sign in."""
    role_claim: str = "groups"
    roles: Mapping[str, Role] = field(default_factory=dict)
    """Role by value of that claim."""
    admins: frozenset[str] = frozenset()
    """Ids (see `person_id`) of people who are always admins: the first admin needs this."""
    sign_in_s: float = 12 * HOUR_S
    """How long a sign-in is valid."""


class Gate:
    """Identifies the sender of a request and returns the service for that person. Safe to share between threads."""

    def __init__(self, service: Service, settings: Settings, read_cookie: ReadCookie = lambda headers, cookies: {}):
        self.settings = settings
        self._service, self._read_cookie = service, read_cookie
        self._tokens = Tokens(service.store.people, service.clock)

    def admit(self, request_headers: Mapping[str, str], cookies: Mapping[str, str]) -> Service:
        """The service for a request; raises `Unauthorised`, and `Forbidden` for a person without a role.

        A token in `Authorization: Bearer` takes precedence; an invalid token is rejected even with a valid cookie.
        """
        headers = {name.lower(): value for name, value in request_headers.items()}
        authorization = headers.get("authorization")
        if authorization is not None:
            scheme, _, token = authorization.strip().partition(" ")
            if scheme.lower() != BEARER:
                raise Unauthorised("Only 'Authorization: Bearer TOKEN' is supported. Send a token.")
            return self.acting_by_token(token.strip())
        return self.by_claims(lambda: self._read_cookie(headers, cookies))

    def by_claims(self, read: Callable[[], Claims]) -> Service:
        """The service for the person who signed in, or for the local operator if no sign-in is configured."""
        return self._service.acting_as(self.actor_of(read())) if self.settings.login else self.local()

    def local(self) -> Service:
        """The service for the local operator; raises `Unauthorised` if other machines can reach the server."""
        if self.settings.login or self.settings.reachable:
            raise Unauthorised(
                "Other machines can reach this server, but sign-in is not configured. Configure [auth] in "
                "~/.streamlit/secrets.toml of the user who serves, or serve only 127.0.0.1."
            )
        return self._service

    def acting_by_token(self, token: str, *, here: bool = False) -> Service:
        """The service for the person of a token, `here` at this machine; raises `Unauthorised`."""
        return self._service.acting_as(replace(self._tokens.actor(token), here=here))

    def actor_of(self, claims: Claims) -> Actor:
        """The person who signed in with these claims of an ID token.

        Raises `Unauthorised` without a sign-in or with one that is too old, `Forbidden` for a person without a role.
        """
        now_s, issued_at_s = self._service.clock.utc_s(), claims.get("iat")
        if not claims.get("is_logged_in") or not isinstance(issued_at_s, int | float):
            raise Unauthorised("You are not signed in. Sign in first.")
        if not issued_at_s <= now_s + HOUR_S or now_s - issued_at_s >= self.settings.sign_in_s:
            raise Unauthorised("This sign-in has expired. Sign in again.")
        person = _id_of(claims)
        role = _role_of(person, claims, self.settings, self._service.store.people)
        if role is None:
            raise Forbidden(f"{person} has no role here. Ask an admin for one.")
        return Actor(id=person, name=str(claims.get("name") or person), role=role)


def hosts() -> list[str]:
    """Host names that this server answers to."""
    return [*LOCAL_HOSTS, *named_hosts()]


def _id_of(claims: Claims) -> str:
    email = person_id(str(claims.get("email")))
    if "@" in email and not email.startswith(SUBJECT) and claims.get("email_verified") is not False:
        return email
    subject = claims.get("sub")
    if not isinstance(subject, str) or not subject:
        raise Unauthorised("The identity provider sent no id. It has to send an e-mail address or a subject.")
    return f"{SUBJECT}{subject}"


def _role_of(person: str, claims: Claims, settings: Settings, people: People) -> Role | None:
    """Role of a person: admin by the settings, else the role that was given, else the highest by the claim."""
    if person in settings.admins:
        return Role.ADMIN
    given = people.role_of(person)
    if given is not None:
        return None if given == NO_ROLE else Role(given)
    said = claims.get(settings.role_claim, ())
    values = [said] if isinstance(said, str) else said if isinstance(said, list | tuple) else []
    found = [settings.roles[value] for value in values if isinstance(value, str) and value in settings.roles]
    return max(found, key=lambda role: role.rank, default=None)
