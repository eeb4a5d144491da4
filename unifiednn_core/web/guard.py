"""Middleware for every request: security headers, trusted hosts, one user, and websockets of own pages alone."""

import os
from collections.abc import Callable
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from unifiednn_core.machine import peers
from unifiednn_core.service.doctor import all_users_may
from unifiednn_core.service.gate import hosts

# Streamlit needs inline and evaluated scripts; other sources are limited to this server.
POLICY = "; ".join(
    (
        "default-src 'self'",
        "script-src 'self' 'unsafe-inline' 'unsafe-eval' 'wasm-unsafe-eval' blob:",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "font-src 'self' data:",
        "connect-src 'self'",
        "worker-src 'self' blob:",
        "object-src 'none'",
        "base-uri 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


FORBIDDEN, UNAVAILABLE = 403, 503
TOO_MANY_FILES = (
    "The server has as many files open as it may, so it cannot see who asks. Try again; if that lasts, restart it "
    "with a higher limit (ulimit -n).\n"
)
PROXIES = "FORWARDED_ALLOW_IPS"
"""Proxies whose X-Forwarded-For uvicorn believes; by default every program of this machine."""
SIGN_IN = "Several people can share a dashboard once sign-in is configured (docs/OPERATE.md)."


def middleware(local: Callable[[], bool]) -> list[Middleware]:
    """Middleware of the server, the outermost first; `local` says whether it serves one user without sign-in."""
    trusted = Middleware(TrustedHostMiddleware, allowed_hosts=hosts(), www_redirect=False)
    return [Middleware(SecurityHeaders), trusted, Middleware(OneUser, local=local), Middleware(OwnWebSockets)]


def is_own(origin: str, headers: Headers) -> bool:
    """Whether a page of this origin was served by the host and port to which a request with these headers goes."""
    return urlsplit(origin).netloc == headers.get("host")


class OwnWebSockets:
    """Refuses websockets that pages of other sites open.

    Streamlit also admits pages from other ports of this machine, and asks a server on the internet for its own address
    before it refuses any other.
    """

    def __init__(self, app: ASGIApp):
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        headers = Headers(scope=scope) if scope["type"] == "websocket" else Headers()
        if "origin" in headers and not is_own(headers["origin"], headers):
            await send({"type": "websocket.close", "code": 1008, "reason": "another site"})  # becomes status 403
        else:
            await self._app(scope, receive, send)


class SecurityHeaders:
    """Adds the headers to every response, unless it sets them itself; cookies of HTTPS stay with HTTPS."""

    def __init__(self, app: ASGIApp):
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                if "https" in (scope["scheme"], Headers(scope=scope).get("x-forwarded-proto")):
                    message["headers"] = [(name, _secure(name, value)) for name, value in message["headers"]]
            await send(message)

        await self._app(scope, receive, with_headers if scope["type"] == "http" else send)


class OneUser:
    """Answers only the user who runs the server, and root, while nobody has to sign in.

    Every user of a machine can connect to its loopback address; the kernel tells who did.
    """

    def __init__(self, app: ASGIApp, local: Callable[[], bool]):
        self._app, self._local = app, local

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or refuse it."""
        asks = scope["type"] in ("http", "websocket")
        refusal = _refusal(scope) if asks and self._local() and not all_users_may() else None
        if refusal is None:
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await refusal(scope, receive, send)
        else:
            await WebSocketClose()(scope, receive, send)


def _refusal(scope: Scope) -> PlainTextResponse | None:
    """The answer to a sender who may not use the dashboard; None if they may."""
    try:
        why = _objection(scope) if peers.can_tell() else ""
    except OSError:
        return PlainTextResponse(TOO_MANY_FILES, UNAVAILABLE)
    return PlainTextResponse(f"{why} {SIGN_IN}\n", FORBIDDEN) if why else None


def _objection(scope: Scope) -> str:
    """Why the sender may not use it; nothing if they may. Raises `OSError` if this process may open no more files."""
    if os.environ.get(PROXIES) != "" and "x-forwarded-for" in Headers(scope=scope):
        return f"A proxy sent this request for somebody else. If it is yours alone, start with {PROXIES}= (empty)."
    try:
        user = peers.owner_of(scope["client"], scope["server"])
    except (OSError, TypeError, ValueError) as error:  # no TCP connection
        if getattr(error, "errno", None) in peers.OUT_OF_FILES:
            raise
        user = None
    if user in (os.geteuid(), 0):
        return ""
    return "This dashboard belongs to another user of this machine."


def _secure(name: bytes, value: bytes) -> bytes:
    """Value of a header; that of a cookie with the attribute that keeps it from connections in the clear."""
    return value + b"; Secure" if name == b"set-cookie" and b"; secure" not in value.lower() else value
