import json

import pytest
from streamlit.auth_util import set_cookie_with_chunks
from streamlit.web.server.starlette.starlette_app_utils import create_signed_value

from pages._ui import signed_in

SECRET, ORIGIN, NAME = "for a test alone", "http://127.0.0.1:8501", "_streamlit_user"
SIZE = {"cookie_attr_size": 60}
SAID = {"email": "alice@example.org", "is_logged_in": True, "origin": ORIGIN}


@pytest.fixture(autouse=True)
def configured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signed_in, "get_cookie_secret", lambda: SECRET)
    monkeypatch.setattr(signed_in, "get_origin_from_redirect_uri", lambda: ORIGIN)


def signed(document: object, *, secret: str = SECRET, name: str = NAME) -> str:
    return create_signed_value(secret, name, json.dumps(document)).decode()


def test_a_cookie_of_streamlits_own_making_is_believed_also_in_pieces() -> None:
    assert signed_in.cookie_claims({}, {NAME: signed(SAID)}) == SAID
    assert signed_in.cookie_claims({"origin": ORIGIN}, {NAME: signed(SAID)}) == SAID
    jar: dict[str, str] = {}
    large = SAID | {"groups": [f"group-{number * 7919}" for number in range(900)]}

    def keep(name: str, value: str) -> None:
        jar[name] = create_signed_value(SECRET, name, value).decode()

    set_cookie_with_chunks(keep, lambda name, value: create_signed_value(SECRET, name, value), NAME, large, **SIZE)
    assert len(jar) > 1 and signed_in.cookie_claims({}, jar) == large
    for gone in list(jar):
        assert signed_in.cookie_claims({}, {name: value for name, value in jar.items() if name != gone}) == {}


def test_no_other_cookie_is_believed() -> None:
    good = signed(SAID)
    body, _, signature = good.rpartition(".")
    others = [
        "",
        "e30",
        body,
        f"{body}.",
        f"{body}.{signature[::-1]}",
        good[1:],
        "é" * 40,
        "\x00",
        json.dumps(SAID),
        signed(SAID, secret="another"),
        signed(SAID, secret=""),
        signed(SAID, name="_streamlit_user_tokens"),  # signed by this server, for something else
        signed(SAID | {"origin": "http://127.0.0.1:8502"}),
        signed({**SAID, "origin": None}),
        signed(None),
        signed([]),
    ]
    assert [signed_in.cookie_claims({}, {NAME: other}) for other in others] == [{}] * len(others)
    assert signed_in.cookie_claims({}, {}) == {}
    for origin in ("http://evil.example", "null", ""):
        assert signed_in.cookie_claims({"origin": origin}, {NAME: good}) == {}


def test_without_a_secret_nobody_is_signed_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signed_in, "get_cookie_secret", lambda: "")
    assert signed_in.cookie_claims({}, {NAME: signed(SAID, secret="")}) == {}
