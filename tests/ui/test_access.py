from collections.abc import Iterator
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from pages._ui import signed_in
from unifiednn_core.home import Home
from unifiednn_core.service import Service

APP = Path(__file__).parents[2] / "app.py"
AUTH = {"cookie_secret": "0" * 64, "redirect_uri": "http://127.0.0.1:8501/oauth2callback"}


@pytest.fixture(autouse=True)
def opened(home: Home, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The one service of the process, over a home of its own and without a supervisor."""
    service = Service.open(home)
    monkeypatch.setattr(signed_in, "opened", lambda: service)
    yield
    service.close()


def page_with(monkeypatch: pytest.MonkeyPatch, **sections: dict[str, object]) -> str:
    """What the first page says under these settings."""
    monkeypatch.setattr(signed_in, "_section", lambda name: sections.get(name, {}))
    app = AppTest.from_file(APP, default_timeout=60).run()
    assert not app.exception, [error.value for error in app.exception]
    return " ".join(element.proto.body for element in app.main if element.type == "html")


def test_without_sign_in_a_server_that_others_can_reach_shows_nothing(service, monkeypatch) -> None:
    assert "on the device," in page_with(monkeypatch)
    monkeypatch.setenv("UNIFIEDNN_HOSTS", "unifiednn.example.org")
    said = page_with(monkeypatch)
    assert "Sign-in is not configured" in said and "on the device," not in said


@pytest.mark.parametrize(
    ("sections", "field"),
    [
        ({"auth": AUTH | {"cookie_secret": "changeme"}}, "auth.cookie_secret"),
        ({"auth": AUTH, "access": {"sign_in_hours": "a day"}}, "access.sign_in_hours"),
        ({"auth": AUTH, "access": {"roles": {"staff": "king"}}}, "access.roles.staff"),
    ],
)
def test_wrong_settings_are_told_and_let_nobody_in(service, monkeypatch, sections, field) -> None:
    said = page_with(monkeypatch, **sections)
    assert field in said and "on the device," not in said


def test_where_people_sign_in_nobody_sees_anything_before(service, monkeypatch) -> None:
    said = page_with(monkeypatch, auth=AUTH)
    assert signed_in.PLEASE_SIGN_IN in said and "on the device," not in said
