"""What holds for every answer: security headers, and the hosts that it is given to."""

import os

from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOCAL_HOSTS = ("127.0.0.1", "localhost")
HOSTS_VARIABLE = "UNIFIEDNN_HOSTS"

# The dashboard's own framework needs inline and evaluated scripts; everything else comes from this server alone.
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


def middleware() -> list[Middleware]:
    """Middleware of the whole server, the outermost first. `UNIFIEDNN_HOSTS` adds host names, with commas between."""
    return [Middleware(SecurityHeaders), Middleware(TrustedHostMiddleware, allowed_hosts=hosts(), www_redirect=False)]


def hosts() -> list[str]:
    """Host names under which this server answers: a page elsewhere cannot reach it under a name of its own."""
    named = os.environ.get(HOSTS_VARIABLE, "").split(",")
    return [*LOCAL_HOSTS, *(name.strip() for name in named if name.strip())]


class SecurityHeaders:
    """Adds the headers to every answer that does not set them itself."""

    def __init__(self, app: ASGIApp):
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, with_headers if scope["type"] == "http" else send)
