"""The gate: from what a request or a session shows to the service as that person may use it."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from unifiednn_core.access.people import Claims, Settings, actor_of
from unifiednn_core.access.roles import LOCAL_OPERATOR, Actor
from unifiednn_core.access.scoped import ScopedService
from unifiednn_core.access.tokens import Tokens
from unifiednn_core.errors import Unauthorised
from unifiednn_core.service import Service

BEARER = "bearer"
ReadCookie = Callable[[Mapping[str, str], Mapping[str, str]], Claims]
"""From headers and cookies of a request to the claims of who is signed in; none where nobody is."""


def _no_cookie(headers: Mapping[str, str], cookies: Mapping[str, str]) -> Claims:
    return {}


class Gate:
    """Who asks, and what this person gets to act through. Safe to share between threads."""

    def __init__(self, service: Service, settings: Settings, read_cookie: ReadCookie = _no_cookie):
        self.settings = settings
        self._service, self._read_cookie = service, read_cookie
        self._people, self._clock = service.people_store, service.clock
        self._tokens = Tokens(self._people, self._clock)

    def admit(self, request_headers: Mapping[str, str], cookies: Mapping[str, str]) -> ScopedService:
        """The service for a request; raises `Unauthorised`, and `Forbidden` for a person without a role.

        A token in `Authorization: Bearer` goes before a cookie, and a wrong one is not made good by a cookie.
        """
        headers = {name.lower(): value for name, value in request_headers.items()}
        authorization = headers.get("authorization")
        if authorization is not None:
            scheme, _, token = authorization.strip().partition(" ")
            if scheme.lower() != BEARER:
                raise Unauthorised("Only 'Authorization: Bearer TOKEN' is understood. Send a token.")
            return self.acting_by_token(token.strip())
        if not self.settings.login:
            return self.local()
        return self.acting_as(self.actor_of(self._read_cookie(headers, cookies)))

    def local(self) -> ScopedService:
        """The service for whoever works at the machine; raises `Unauthorised` where others can reach it."""
        if self.settings.login or self.settings.reachable:
            raise Unauthorised(
                "Others can reach this server, and nobody has to sign in. Configure sign-in ([auth] in "
                ".streamlit/secrets.toml), or serve 127.0.0.1 alone."
            )
        return self.acting_as(LOCAL_OPERATOR)

    def actor_of(self, claims: Claims) -> Actor:
        """Who is signed in with these claims; raises `Unauthorised` and `Forbidden`."""
        return actor_of(claims, self.settings, self._people, self._clock.utc_s())

    def acting_by_token(self, token: str, *, here: bool = False) -> ScopedService:
        """The service for the person of a token, at this machine or elsewhere; raises `Unauthorised`."""
        return self.acting_as(replace(self._tokens.actor(token), here=here))

    def acting_as(self, actor: Actor) -> ScopedService:
        """The service as `actor` may use it."""
        return ScopedService(self._service, self._people, self._tokens, actor)
