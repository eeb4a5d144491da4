import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from pages._ui import signed_in
from tests.ui.reading import press
from tests.unit.service.kit import ADMIN, ALICE, LOCAL_OPERATOR, OPERATOR, SHARED, VIEWER, World, world
from unifiednn_core.base.clock import Clock
from unifiednn_core.base.paths import Home
from unifiednn_core.service.facade import Service
from unifiednn_core.service.gate import Settings
from unifiednn_core.service.roles import Actor, Role

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
    assert "~/.streamlit/secrets.toml of the user who serves" in said


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


def test_sign_in_without_what_it_needs_lets_nobody_in(service, monkeypatch) -> None:
    monkeypatch.setattr(signed_in, "find_spec", lambda name: None)
    said = page_with(monkeypatch, auth=AUTH)
    assert "Authlib" in said and "on the device," not in said


def test_where_people_sign_in_nobody_sees_anything_before(service, monkeypatch) -> None:
    said = page_with(monkeypatch, auth=AUTH)
    assert signed_in.PLEASE_SIGN_IN in said and "on the device," not in said


def signed_in_as(monkeypatch: pytest.MonkeyPatch, home: Home, actor: Actor) -> World:
    """A home where people sign in, and one who did."""
    here = world(home, Clock(), Settings(login=True))
    here.service.start_supervisor = lambda: None  # what it is to start is nowhere
    here.of(LOCAL_OPERATOR).people.give_role(actor.id, actor.role)
    claims = {"is_logged_in": True, "iat": time.time(), "email": actor.id}
    monkeypatch.setattr(signed_in, "opened", lambda: here.service)
    monkeypatch.setattr(signed_in, "_section", lambda name: AUTH if name == "auth" else {})
    monkeypatch.setattr(signed_in, "_claims", lambda: claims)
    return here


PAGES = {
    "now": "",
    "queue": "",
    "submit": "",
    "build": "",
    "run": SHARED,
    "compare": SHARED,
    "library": "",
    "people": "",
}
CLOSED = {
    Role.VIEWER: {"queue", "submit", "build", "library", "people"},
    Role.SUBMITTER: {"queue", "people"},
    Role.OPERATOR: {"people"},
}
FORBIDDEN = {("compare", Role.SUBMITTER): "from the work of several people"}


@pytest.mark.parametrize("actor", [VIEWER, ALICE, OPERATOR, ADMIN], ids=lambda actor: actor.role)
def test_each_role_is_shown_its_pages_and_on_them_what_is_its_own(home, monkeypatch, actor) -> None:
    here = signed_in_as(monkeypatch, home, actor)
    for name, run in PAGES.items():
        app = AppTest.from_file(APP, default_timeout=60).run()
        if run:
            app.query_params["run"] = run
        app.switch_page(f"pages/{name}.py").run()
        assert not app.exception, (name, [error.value for error in app.exception])
        said = " ".join(str(element.proto) for element in app.main if hasattr(element, "proto"))
        assert ("Not for your role" in said) == (name in CLOSED.get(actor.role, ())), name
        assert FORBIDDEN.get((name, actor.role), "") in said
        if actor is ALICE:
            assert "bravo" not in said and "bob" not in said, name
        elif run and name == "run":
            assert "alpha" in said and "bravo" in said
    ends = {line.action for line in here.of(LOCAL_OPERATOR).people.audit() if line.outcome == "forbidden"}
    assert ends <= ({"comparison"} if actor is ALICE else set()), "no page asks for what it is not given"
    here.service.close()


@pytest.mark.parametrize(("actor", "first"), [(ALICE, "Submit a network"), (OPERATOR, "on the device")])
def test_a_submitter_begins_with_a_submission_and_an_operator_with_now(home, monkeypatch, actor, first) -> None:
    here = signed_in_as(monkeypatch, home, actor)
    app = AppTest.from_file(APP, default_timeout=60).run()
    assert not app.exception, [error.value for error in app.exception]
    assert first in " ".join(element.proto.body for element in app.main if element.type == "html")
    assert "Priority" not in {box.label for box in app.number_input}, "an operator decides between people"
    here.service.close()


def test_an_admin_decides_who_may_share_a_process_and_puts_people_into_teams(home, monkeypatch) -> None:
    here = signed_in_as(monkeypatch, home, ADMIN)

    def said() -> str:
        assert not app.exception, [error.value for error in app.exception]
        return " ".join(element.proto.body for element in app.main if element.type == "html")

    app = AppTest.from_file(APP, default_timeout=60).run()
    app.session_state["people-tabs"] = "Sharing"
    app.switch_page("pages/people.py").run()
    assert "Who may share a process: team" in said() and "This is the default." in said() and "No teams yet" in said()
    app.text_input(key="team-person").input("Alice@example.org")
    app.text_input(key="team-name").input("Red  Pandas")
    app.button(key="team-give").click().run()
    assert ALICE.id in said() and "red pandas" in said()
    app.text_input(key="tickets-person").input("bob@example.org")
    app.number_input(key="tickets-number").set_value(3)
    app.button(key="tickets-give").click().run()
    assert "bob@example.org" in said() and here.store.people.tickets_of("bob@example.org") == 3
    app.selectbox(key="sharing-of").select("own")
    app.button(key="sharing-save").click().run()
    assert "Who may share a process: own" in said() and f"by {ADMIN.id}" in said()
    rule = here.store.people.sharing_rule()
    assert (rule.sharing, rule.teams) == ("own", {ALICE.id: "red pandas"})
    audited = {line.action: line.subject for line in here.of(ADMIN).people.audit()}
    assert (audited["set_sharing"], audited["give_team"]) == ("own", "Alice@example.org Red  Pandas")
    here.service.close()


def test_who_is_signed_in_can_sign_out(home, monkeypatch) -> None:
    here, left = signed_in_as(monkeypatch, home, VIEWER), []
    monkeypatch.setattr(signed_in.st, "logout", lambda: left.append(True))
    press(AppTest.from_file(APP, default_timeout=60).run(), "Sign out")
    here.service.close()
    assert left == [True]
