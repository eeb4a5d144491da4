"""Who uses the dashboard: the one at the machine, or somebody who signed in. All that a page asks goes through here."""

import gc
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, cast

import streamlit as st

from pages._ui import live_chart, login_cookie, markup
from unifiednn_core.errors import BadInput, Forbidden, Unauthorised

if TYPE_CHECKING:
    from starlette.requests import Request

    from unifiednn_core.access.gate import Gate
    from unifiednn_core.access.people import Settings
    from unifiednn_core.access.roles import Actor
    from unifiednn_core.access.scoped import ScopedService
    from unifiednn_core.service import Service

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
OPEN_REMEDY = "Configure [auth] in .streamlit/secrets.toml, or serve 127.0.0.1 alone (server.address, UNIFIEDNN_HOSTS)."
SECRET_LENGTH = 32
SECRET_REMEDY = f"Give {SECRET_LENGTH} random ones or more: python -c 'import secrets; print(secrets.token_hex())'"
PLEASE_SIGN_IN = "Networks of several people train here as one. Sign in to see and steer yours."


@st.cache_resource(show_spinner=False)
def opened() -> "Service":
    """The one service of this process, with its supervisor started and the charts' library in place.

    It knows nobody and refuses nothing: pages and routes take what `service` and `admit` give them.
    """
    from unifiednn_core.service import Service

    opened = Service.open()
    opened.start_supervisor()
    live_chart.install_plotly()
    # Streamlit collects garbage after every run of a script; frozen imports are not walked through each time.
    gc.collect()
    gc.freeze()
    return opened


def login_configured() -> bool:
    """Whether people have to sign in."""
    return bool(_section("auth"))


def settings() -> "Settings":
    """How people are known: sections `[auth]` and `[access]` of Streamlit's secrets; raises `BadInput`."""
    from unifiednn_core.access.people import HOUR_S, Settings
    from unifiednn_core.access.roles import Role, person_id

    access = _section("access")
    hours = access.get("sign_in_hours", 12)
    if not isinstance(hours, int | float) or hours <= 0:
        message, remedy = f"'{hours}' is no time.", "Give hours, such as 12."
        raise BadInput.of("Sign-in", field="access.sign_in_hours", message=message, remedy=remedy)
    if login_configured() and find_spec("authlib") is None:
        message, remedy = "Authlib, which signs people in, is not installed.", "pip install -e '.[login]'"
        raise BadInput.of("Sign-in", field="auth", message=message, remedy=remedy)
    secret = str(_section("auth").get("cookie_secret", ""))
    if 0 < len(secret) < SECRET_LENGTH:
        message, remedy = f"It has {len(secret)} characters, and sign-ins can be forged.", SECRET_REMEDY
        raise BadInput.of("Sign-in", field="auth.cookie_secret", message=message, remedy=remedy)
    return Settings(
        login=login_configured(),
        reachable=_reachable(),
        role_claim=str(access.get("role_claim", "groups")),
        roles={value: Role.of(str(role), f"access.roles.{value}") for value, role in access.get("roles", {}).items()},
        admins=frozenset(person_id(str(person)) for person in access.get("admins", ())),
        sign_in_s=hours * HOUR_S,
    )


def gate() -> "Gate":
    """The gate of this server; raises `BadInput` where its settings are wrong."""
    from unifiednn_core.access.gate import Gate

    return Gate(opened(), settings(), login_cookie.claims)


def admit(request: "Request") -> "Service":
    """The service for whoever sends a request; raises `Unauthorised` and `Forbidden`."""
    return cast("Service", gate().admit(request.headers, request.cookies))


def service() -> "Service":
    """The service for whoever looks at this page. Who lost access while it was open sees `require` say so."""
    doors = gate()
    try:
        scoped = doors.acting_as(doors.actor_of(_claims())) if doors.settings.login else doors.local()
    except (Unauthorised, Forbidden):
        st.rerun()
    return cast("Service", scoped)


def administration() -> "ScopedService":
    """What an admin does about people; for others each of its calls raises `Forbidden`."""
    return cast("ScopedService", service())


def actor() -> "Actor | None":
    """Who is signed in; None where nobody is, or somebody without a role, or nobody has to be."""
    if not login_configured():
        return None
    try:
        return gate().actor_of(_claims())
    except (BadInput, Unauthorised, Forbidden):  # `require` says which
        return None


def require(title: str) -> None:
    """Draw the rest of the page for those alone whom it is for; everybody else reads what to do."""
    if not login_configured():
        if _reachable():
            _stop("Sign-in is not configured", "Others can reach this server, and nobody has to sign in.", OPEN_REMEDY)
        return
    try:
        person = gate().actor_of(_claims())
    except BadInput as error:
        [wrong] = error.findings
        _stop("Sign-in is not configured", f"{wrong.field}: {wrong.message}", wrong.remedy)
    except Unauthorised as error:
        _sign_in(str(error) if _claims().get("is_logged_in") else "")
    except Forbidden as error:
        _no_role(str(error))
    else:
        _sidebar(person)
        if not may_see(person, title):
            _stop(
                "Not for your role", f"You are a {person.role} here; this page is for others.", "Ask an admin for it."
            )


def may(action: str) -> bool:
    """Whether the role of whoever looks at this page allows an action: what it does not allow is not drawn."""
    from unifiednn_core.access.permissions import RULES

    person = actor()
    return person is None or person.role.rank >= RULES[action].least.rank


def may_see(person: "Actor", title: str) -> bool:
    """Whether a page of this title is for a person."""
    from unifiednn_core.access.permissions import RULES

    needs = {"Build": "submit", "Library": "files", "People": "people"}.get(title, "runs")
    return person.role.rank >= RULES[needs].least.rank


# -- inside


def _claims() -> dict[str, Any]:
    return dict(st.user.to_dict())


def _section(name: str) -> dict[str, Any]:
    found = st.secrets.get(name) if st.secrets.load_if_toml_exists() else None
    return {} if found is None else found.to_dict()


def _reachable() -> bool:
    """Whether others can: the server listens to them, or answers to a name that a proxy in front of it has."""
    from unifiednn_core.web.guard import LOCAL_HOSTS, hosts

    return st.get_option("server.address") not in LOOPBACK or not set(hosts()) <= set(LOCAL_HOSTS)


def _sidebar(person: "Actor") -> None:
    with st.sidebar:
        st.html(markup.small(f"{person.name}, {person.role}"))
        if st.button("Sign out", key="sign-out", icon=":material/logout:", type="tertiary"):
            st.logout()


def _sign_in(why: str) -> None:
    st.html(markup.door("UnifiedNN", why or PLEASE_SIGN_IN))
    with st.container(horizontal=True, horizontal_alignment="center"):
        if st.button("Sign in", key="sign-in", type="primary", icon=":material/login:"):
            st.login()
    st.stop()


def _no_role(why: str) -> None:
    st.html(markup.door("No role yet", why))
    with st.container(horizontal=True, horizontal_alignment="center"):
        if st.button("Sign out", key="sign-out", icon=":material/logout:"):
            st.logout()
    st.stop()


def _stop(title: str, message: str, remedy: str) -> None:
    st.html(markup.notice("orange", "lock", title, message, remedy))
    st.stop()
