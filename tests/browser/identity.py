"""A small OpenID Connect identity provider on 127.0.0.1: whoever asks to sign in chooses who to be."""

import base64
import hashlib
import html
import secrets
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

import uvicorn
from joserfc import jwt
from joserfc.jwk import RSAKey
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from tests.waiting import wait_until

CLIENT_ID, CLIENT_SECRET = "unifiednn", "of-a-test"
LIFE_S = 3600


@dataclass
class IdentityProvider:
    """Knows people by e-mail address, with further claims of each; `start` serves it."""

    port: int
    redirect_uri: str
    people: Mapping[str, Mapping[str, Any]]
    key: RSAKey = field(default_factory=lambda: RSAKey.generate_key(2048, {"use": "sig", "alg": "RS256", "kid": "1"}))
    codes: dict[str, tuple[str, Mapping[str, str]]] = field(default_factory=dict)
    """Person and request by code; each counts once."""
    tokens: dict[str, str] = field(default_factory=dict)
    """Person by access token."""
    server: uvicorn.Server | None = None

    @property
    def issuer(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        routes = [
            Route("/.well-known/openid-configuration", self.discovery),
            Route("/jwks", self.jwks),
            Route("/authorize", self.authorize),
            Route("/token", self.token, methods=["POST"]),
            Route("/userinfo", self.userinfo),
        ]
        config = uvicorn.Config(
            Starlette(routes=routes), host="127.0.0.1", port=self.port, log_level="error", ws="none", lifespan="off"
        )
        self.server = uvicorn.Server(config)
        threading.Thread(target=self.server.run, daemon=True).start()
        wait_until(lambda: self.server is not None and self.server.started, "the identity provider")

    def stop(self) -> None:
        if self.server is not None:
            self.server.should_exit = True

    def discovery(self, request: Request) -> Response:
        return JSONResponse(
            {
                "issuer": self.issuer,
                "authorization_endpoint": f"{self.issuer}/authorize",
                "token_endpoint": f"{self.issuer}/token",
                "jwks_uri": f"{self.issuer}/jwks",
                "userinfo_endpoint": f"{self.issuer}/userinfo",
                "response_types_supported": ["code"],
                "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": ["RS256"],
                "code_challenge_methods_supported": ["S256"],
            }
        )

    def jwks(self, request: Request) -> Response:
        return JSONResponse({"keys": [self.key.as_dict(private=False)]})

    def authorize(self, request: Request) -> Response:
        """Ask who it is; with `person`, send this person back with a code."""
        asked = dict(request.query_params)
        person = asked.pop("person", None)
        wanted = (asked.get("client_id"), asked.get("redirect_uri"), asked.get("code_challenge_method"))
        if wanted != (CLIENT_ID, self.redirect_uri, "S256") or "openid" not in asked.get("scope", ""):
            return Response("Wrong client, address, challenge or scope.", 400)
        if person is None:
            links = (
                f'<p><a href="?{html.escape(urlencode(asked | {"person": one}))}">{html.escape(one)}</a></p>'
                for one in self.people
            )
            return HTMLResponse("<h1>Who are you?</h1>" + "".join(links))
        code = secrets.token_urlsafe()
        self.codes[code] = (person, asked)
        return RedirectResponse(f"{self.redirect_uri}?{urlencode({'code': code, 'state': asked['state']})}", 302)

    async def token(self, request: Request) -> Response:
        """Give tokens for a code, once, to the client that began with its challenge."""
        form = await request.form()
        scheme, _, credentials = request.headers.get("Authorization", "").partition(" ")
        known = scheme == "Basic" and base64.b64decode(credentials).decode() == f"{CLIENT_ID}:{CLIENT_SECRET}"
        person, asked = self.codes.pop(str(form.get("code")), ("", {}))
        digest = hashlib.sha256(str(form.get("code_verifier")).encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        if not known or not person or challenge != asked["code_challenge"]:
            return JSONResponse({"error": "invalid_grant"}, 400)
        access_token, now_s = secrets.token_urlsafe(), int(time.time())
        self.tokens[access_token] = person
        claims = {"iss": self.issuer, "aud": CLIENT_ID, "iat": now_s, "exp": now_s + LIFE_S, "nonce": asked["nonce"]}
        id_token = jwt.encode({"alg": "RS256", "kid": self.key.kid}, claims | self.claims_of(person), self.key)
        return JSONResponse(
            {"access_token": access_token, "token_type": "Bearer", "expires_in": LIFE_S, "id_token": id_token}
        )

    def userinfo(self, request: Request) -> Response:
        person = self.tokens.get(request.headers.get("Authorization", "").removeprefix("Bearer "))
        return JSONResponse({"error": "invalid_token"}, 401) if person is None else JSONResponse(self.claims_of(person))

    def claims_of(self, person: str) -> dict[str, Any]:
        return {"sub": hashlib.sha256(person.encode()).hexdigest(), "email": person, **self.people[person]}
