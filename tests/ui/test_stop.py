"""Stop and keep, or discard after typing the name."""

from dataclasses import replace

import pytest

from tests.ui.fake_views import mid_flight
from tests.ui.reading import text_of
from unifiednn_core.spec.lifecycle import ENDED


def keys(app):
    return {button.key for button in app.button}


def name_field(app):
    return next(field for field in app.text_input if field.label.startswith("Type its name"))


def asked(open_page, submodel=""):
    app = open_page("run", run="r-live")
    return app.button(key=f"stop-r-live-{submodel}").click().run()


@pytest.mark.parametrize("page", ["run", "now"])
def test_a_stop_is_carried_out_only_after_the_question(page, open_page, service):
    app = open_page(page, run="r-live")
    app.button(key="stop-r-live-").click().run()
    assert service.done == []
    app.button(key="stop-yes").click().run()
    assert service.done == [("stop", "r-live", None)]
    assert "stop-yes" not in keys(app)


@pytest.mark.parametrize("page", ["run", "now"])
def test_a_queued_run_is_stopped_from_the_list(page, open_page, service, said):
    said["runs"] = {"ticked": ["r-queued"]}
    app = open_page(page)
    app.button(key="stop-r-queued-").click().run()
    app.button(key="stop-yes").click().run()
    assert service.done == [("stop", "r-queued", None)]


def test_the_list_of_runs_is_as_live_as_its_runs(open_page, service, monkeypatch):
    periods = []
    monkeypatch.setattr("streamlit.fragment", lambda *, run_every: periods.append(run_every) or (lambda draw: draw))
    assert "data as of" in text_of(open_page("run"))
    service.listed[:] = [run for run in service.listed if run.state in ENDED]
    open_page("run")
    assert set(periods) == {1.0, 5.0}


def test_the_question_says_that_the_others_go_on(open_page, service):
    app = asked(open_page, "resnet")
    assert "the other sub-models continue" in text_of(app)
    app.button(key="stop-yes").click().run()
    assert service.done == [("stop", "r-live", "resnet")]


def test_a_stop_can_be_thought_better_of(open_page, service):
    app = asked(open_page)
    app.button(key="stop-no").click().run()
    assert service.done == [] and "stop-no" not in keys(app)


@pytest.mark.parametrize(("submodel", "name"), [("", "demo"), ("resnet", "resnet")])
def test_a_discard_needs_the_name_and_says_what_is_lost(submodel, name, open_page, service):
    app = asked(open_page, submodel)
    app.button(key="stop-discard").click().run()
    assert "no model file and no checkpoint" in text_of(app)
    assert app.button(key="discard-yes").disabled
    for typed in ("", name.upper(), name[:-1], f"{name} "):
        name_field(app).set_value(typed).run()
        assert app.button(key="discard-yes").disabled, typed
    name_field(app).set_value(name).run()
    assert service.done == []
    app.button(key="discard-yes").click().run()
    assert service.done == [("discard", "r-live", submodel or None)]
    assert "discard-yes" not in keys(app)


def test_a_name_that_was_typed_once_does_not_count_for_the_next_discard(open_page, service):
    app = asked(open_page)
    app.button(key="stop-discard").click().run()
    name_field(app).set_value("demo").run()
    app.button(key="discard-no").click().run()
    app.button(key="stop-r-live-").click().run()
    app.button(key="stop-discard").click().run()
    assert app.button(key="discard-yes").disabled and service.done == []


def test_a_run_named_like_markdown_can_be_discarded(open_page, service):
    service.listed[0] = replace(mid_flight(), name="*a* [b](c)")
    app = asked(open_page)
    app.button(key="stop-discard").click().run()
    assert "`*a* [b](c)`" in name_field(app).label
    name_field(app).set_value("*a* [b](c)").run()
    assert not app.button(key="discard-yes").disabled
