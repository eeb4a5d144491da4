"""Reads Streamlit's sign-in cookie from a request, as its websocket does. The one place that knows how it is made."""

import json
from collections.abc import Mapping
from typing import Any

from streamlit.auth_util import get_cookie_with_chunks, get_origin_from_redirect_uri
from streamlit.web.server.server_util import AUTH_COOKIE_NAME, get_cookie_secret
from streamlit.web.server.starlette.starlette_app_utils import decode_signed_value


def claims(headers: Mapping[str, str], cookies: Mapping[str, str]) -> dict[str, Any]:
    """Claims of the ID token of who is signed in; none where the cookie is missing, forged, too old, or for elsewhere.

    `headers` are those of the request by lower-case names.
    """
    secret, origin = get_cookie_secret(), get_origin_from_redirect_uri()

    def signed(name: str) -> bytes | None:
        value = cookies.get(name)
        return None if value is None else decode_signed_value(secret, name, value.encode("latin-1", "replace"))

    if not secret or origin is None or headers.get("origin", origin) != origin:
        return {}
    cookie = get_cookie_with_chunks(signed, AUTH_COOKIE_NAME)
    try:
        said = json.loads(cookie) if cookie is not None else {}
    except ValueError:
        return {}
    return said if isinstance(said, dict) and said.get("origin") == origin else {}
