"""The page Admin on a server where nobody signs in: every button of its tabs."""

import pytest

from tests.ui.reading import text_of
from unifiednn_core.base.errors import NotFound
from unifiednn_core.service.roles import NO_ROLE, Role
from unifiednn_core.spec.retention import GIB, Retention


@pytest.fixture
def tab(open_page, service, monkeypatch):
    """Opens the page at a tab."""

    def tab(name: str):
        app = open_page("people")
        app.session_state["people-tabs"] = name
        app.run()
        assert not app.exception, [error.value for error in app.exception]
        return app

    return tab


def done(app):
    assert not app.exception, [error.value for error in app.exception]
    return app


def test_roles_are_given_and_removed(tab, service):
    app = tab("Roles")
    assert "Nobody signs in" in text_of(app)
    app.text_input(key="role-person").input("Ann@example.org")
    app.selectbox(key="role-role").select(str(Role.OPERATOR))
    done(app.button(key="role-give").click().run())
    assert "ann@example.org operator" in text_of(app)
    app.selectbox(key="role-gone").select("ann@example.org").run()
    done(app.button(key="role-forget").click().run())
    assert service.people.people() == () and NO_ROLE in app.selectbox(key="role-role").options


def test_tokens_are_made_shown_once_and_revoked(tab, service):
    app = tab("Tokens")
    app.text_input(key="token-person").input("ann@example.org")
    done(app.button(key="token-create").click().run())
    [token] = service.people.tokens()
    assert any(token.token_id in one.value for one in app.code)
    app.selectbox(key="token-gone").select(token.token_id).run()
    done(app.button(key="token-revoke").click().run())
    assert "revoked" in text_of(app)


def test_quotas_are_set_for_everybody_and_for_one(tab, service):
    app = tab("Disk")
    assert "Home folder" in text_of(app) and "this computer" in text_of(app)
    assert str(service.home.root) in text_of(app), "where it is"
    app.number_input(key="quota-gib").set_value(2.0)
    done(app.button(key="quota-set").click().run())
    assert service.people.default_quota() == 2 * GIB
    app.text_input(key="quota-person").input("ann@example.org")
    app.number_input(key="quota-gib").set_value(3.0)
    done(app.button(key="quota-set").click().run())
    assert service.store.people.quota_of("ann@example.org") == 3 * GIB
    assert service.store.people.quota_of("bob@example.org") == 2 * GIB


def test_what_retention_would_delete_is_shown_before_and_deleted_only_when_asked(tab, service):
    app = tab("Disk")
    assert "Nothing is deleted by itself" in text_of(app)
    app.number_input(key="retention-runs").set_value(0.001)
    done(app.button(key="retention-show").click().run())
    assert "Not saved" in text_of(app) and "Due now:" in text_of(app)
    assert service.retention.retention().is_off and service.runs.observe("r-done")
    app.number_input(key="retention-runs").set_value(0.001)
    done(app.button(key="retention-save").click().run())
    assert service.retention.retention() == Retention(keep_runs_days=0.001)
    due = {one.run.run_id for one in service.retention.planned()}
    assert "r-done" in due and not due & {"r-live", "r-queued", "r-lost"}
    done(app.button(key="retention-apply").click().run())
    with pytest.raises(NotFound):
        service.runs.observe("r-done")
    assert {line.person for line in service.people.audit() if line.action == "delete_run"} == {"retention"}
    assert service.runs.observe("r-live") and "Nothing is due." in text_of(app)


def test_the_log_is_searched_filtered_turned_and_taken_as_csv(tab, service):
    for place in range(70):
        service.store.people.note(
            person="ann@example.org" if place % 7 else "=bob",
            role="submitter",
            action="stop",
            subject=f"run {place}",
            outcome="allowed",
        )
    app = tab("Audit log")
    assert "run 69" in text_of(app) and "run 3 " not in text_of(app)
    done(app.button(key="audit-older").click().run())
    assert "run 3 " in text_of(app)
    done(app.button(key="audit-newer").click().run())
    app.selectbox(key="audit-person").select("=bob").run()
    assert "10 lines" in text_of(app) and "ann@" not in text_of(app).split("Newest")[1]
    app.selectbox(key="audit-action").select("stop").run()
    app.text_input(key="audit-text").input("run 63").run()
    assert "1 line" in text_of(app)
    csv = service.people.audit_csv(person="=bob")
    assert csv.count("\r\n") == 11 and "'=bob" in csv, "no cell is a formula"
    app.text_input(key="audit-text").input("nothing has this").run()
    assert "No line matches" in text_of(app)


@pytest.mark.parametrize("name", ["Sharing", "Health", "Notifications", "Protections"])
def test_the_other_tabs_are_drawn(name, tab):
    assert text_of(tab(name))
