"""The user of the dashboard: the local operator, or a person who signed in. Pages get their service here."""

import atexit
import json
import logging
import sys
import threading
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import streamlit as st
from starlette.requests import Request
from streamlit.auth_util import get_cookie_with_chunks, get_origin_from_redirect_uri
from streamlit.web.server.server_util import AUTH_COOKIE_NAME, get_cookie_secret
from streamlit.web.server.starlette.starlette_app_utils import decode_signed_value

from unifiednn_core.base.errors import BadInput, Forbidden, Unauthorised
from unifiednn_core.base.garbage import collect_rarely
from unifiednn_core.service.facade import PERMISSIONS, Service
from unifiednn_core.service.gate import HOUR_S, LOCAL_HOSTS, Gate, Settings, hosts
from unifiednn_core.service.roles import Actor, Role
from unifiednn_core.spec.run import person_id
from unifiednn_core.views import markup

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
OPEN_REMEDY = (
    "Configure [auth] in ~/.streamlit/secrets.toml of the user who serves, or serve 127.0.0.1 alone (server.address, "
    "UNIFIEDNN_HOSTS)."
)
SECRET_LENGTH = 32
SECRET_REMEDY = f"Give {SECRET_LENGTH} random ones or more: python -c 'import secrets; print(secrets.token_hex())'"
HELD_S = 0.3
AGAIN_S = 5.0
"""Between two attempts of a server to open its store."""
_HELD = threading.local()
_log = logging.getLogger(__name__)
PLEASE_SIGN_IN = "Networks of several people train here as one. Sign in to see and control yours."


@st.cache_resource(show_spinner=False)
def opened() -> Service:
    """The one service of this process, with its supervisor started; it is closed when the process exits.

    It acts for the local operator: pages and routes use `service` and `admit` instead.
    """
    opened = Service.open(arguments=sys.argv)
    opened.start_supervisor()
    atexit.register(opened.close)
    collect_rarely()
    return opened


def open_soon() -> None:
    """Open the service in the background as soon as it can be: what waits to train needs no visitor."""

    def keep_trying() -> None:
        told = False
        while True:
            try:
                opened()
                return
            except Exception:  # the first visitor gets the finding on a page
                if not told:
                    _log.exception(
                        "The store cannot be opened. Nothing trains before; it is tried every %g s.", AGAIN_S
                    )
                told = True
            time.sleep(AGAIN_S)

    threading.Thread(target=keep_trying, name="open", daemon=True).start()


def login_configured() -> bool:
    """Whether people have to sign in."""
    return bool(_section("auth"))


def is_local() -> bool:
    """Whether the server is for one user of this machine: no sign-in, no other machines."""
    return not login_configured() and not _reachable()


def settings() -> Settings:
    """Settings of sign-in: sections `[auth]` and `[access]` of Streamlit's secrets; raises `BadInput`."""
    access = _section("access")
    hours, secret = access.get("sign_in_hours", 12), str(_section("auth").get("cookie_secret", ""))
    wrong = None
    if not isinstance(hours, int | float) or hours <= 0:
        wrong = "access.sign_in_hours", f"'{hours}' is no duration.", "Give hours, such as 12."
    elif login_configured() and find_spec("authlib") is None:
        wrong = "auth", "Authlib, which signs people in, is not installed.", "pip install -e '.[login]'"
    elif 0 < len(secret) < SECRET_LENGTH:
        wrong = "auth.cookie_secret", f"It has {len(secret)} characters: sign-ins can be forged.", SECRET_REMEDY
    if wrong:
        raise BadInput.of("Sign-in", field=wrong[0], message=wrong[1], remedy=wrong[2])
    return Settings(
        login=login_configured(),
        reachable=_reachable(),
        role_claim=str(access.get("role_claim", "groups")),
        roles={value: Role.of(str(role), f"access.roles.{value}") for value, role in access.get("roles", {}).items()},
        admins=frozenset(person_id(str(person)) for person in access.get("admins", ())),
        sign_in_s=hours * HOUR_S,
    )


def gate() -> Gate:
    """The gate of this server; raises `BadInput` if its settings are wrong."""
    return Gate(opened(), settings(), cookie_claims)


def admit(request: Request) -> Service:
    """The service for the sender of a request; raises `Unauthorised` and `Forbidden`."""
    return gate().admit(request.headers, request.cookies)


def service() -> Service:
    """The service for the viewer of this page. After a loss of access, the page reruns and `require` explains.

    Each update of a page is a thread and asks many times, so the answer holds for a moment in the thread.
    """
    now_s = time.monotonic()
    found, until_s = getattr(_HELD, "service", (None, 0.0))
    if found is not None and now_s < until_s:
        return cast("Service", found)
    doors = gate()
    try:
        found = doors.by_claims(_claims)
    except (Unauthorised, Forbidden):
        st.rerun()
    _HELD.service = found, now_s + HELD_S
    return found


def actor() -> Actor | None:
    """The person who signed in; None without a sign-in, without a role, or if the server needs no sign-in."""
    if not login_configured():
        return None
    try:
        return gate().actor_of(_claims())
    except (BadInput, Unauthorised, Forbidden):  # `require` says which
        return None


def viewer() -> tuple[str, str] | None:
    """Who looks, as a key: id and role; None without a sign-in."""
    person = actor()
    return None if person is None else (person.id, person.role)


def require(title: str) -> None:
    """Stop the page for people who may not see it, and say what they can do."""
    if not login_configured():
        if _reachable():
            _stop("Sign-in is not configured", "Other machines can reach this server.", OPEN_REMEDY)
        return
    try:
        person = gate().actor_of(_claims())
    except BadInput as error:
        [wrong] = error.findings
        _stop("Sign-in is not configured", f"{wrong.field}: {wrong.message}", wrong.remedy)
    except Unauthorised as error:
        why = str(error) if _claims().get("is_logged_in") else PLEASE_SIGN_IN
        if _door("UnifiedNN", why, "Sign in", key="sign-in", type="primary", icon=":material/login:"):
            st.login()
        st.stop()
    except Forbidden as error:
        if _door("No role yet", str(error), "Sign out", key="sign-out", icon=":material/logout:"):
            st.logout()
        st.stop()
    else:
        with st.sidebar:
            st.html(markup.small(f"{person.name}, {person.role!s}"))
            if st.button("Sign out", key="sign-out", icon=":material/logout:", type="tertiary"):
                st.logout()
        if not may_see(person, title):
            message = f"Your role here is {person.role!s}; this page is for others."
            _stop("Not for your role", message, "Ask an admin for it.")


def may(action: str) -> bool:
    """Whether the viewer's role allows an action; pages do not draw what it forbids."""
    person = actor()
    return person is None or person.role.rank >= PERMISSIONS[action].least.rank


def may_see(person: Actor, title: str) -> bool:
    """Whether a page of this title is for a person."""
    needs = {"Submit": "submit", "Build": "submit", "Library": "files", "Queue": "hybrids", "People": "people"}
    return person.role.rank >= PERMISSIONS[needs.get(title, "runs")].least.rank


def _claims() -> dict[str, Any]:
    return dict(st.user.to_dict())


def _section(name: str) -> dict[str, Any]:
    """A section of the secrets. Streamlit looks for a missing file each time, so that is done here."""
    if not any(Path(str(file)).exists() for file in st.get_option("secrets.files")):
        return {}
    found = st.secrets.get(name) if st.secrets.load_if_toml_exists() else None
    return {} if found is None else found.to_dict()


def _reachable() -> bool:
    """Whether other machines can reach the server, by its address or through a proxy."""
    return st.get_option("server.address") not in LOOPBACK or not set(hosts()) <= set(LOCAL_HOSTS)


def _door(heading: str, why: str, label: str, **button: Any) -> bool:
    """Draw a page that has one button; returns whether it was pressed."""
    st.html(markup.empty(heading, why, "u-door"))
    with st.container(horizontal=True, horizontal_alignment="center"):
        return st.button(label, **button)


def _stop(title: str, message: str, remedy: str) -> None:
    st.html(markup.notice("orange", "lock", title, message, remedy))
    st.stop()


def cookie_claims(headers: Mapping[str, str], cookies: Mapping[str, str]) -> dict[str, Any]:
    """Claims of the signed-in person's ID token; none if the cookie is missing, forged, too old, or of another site.

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
