from dataclasses import replace

import pytest

from pages._ui import submodels, wording
from tests.ui.fake_views import mid_flight, run, submodel
from tests.ui.reading import html_of, labels, text_of
from unifiednn_core.errors import IllegalTransition
from unifiednn_core.lifecycle import Event, State, actions

CHARTS = {"chart-loss", "chart-accuracy", "chart-schedule", "chart-memory"}


def charts(app):
    """Figures in the page's order."""
    return [element.proto for element in app.get("bidi_component")]


def test_a_live_run_shows_four_charts_and_all_sub_models(open_page):
    app = open_page("run", run="r-live")
    assert len(charts(app)) == len(CHARTS)
    assert {"lenet", "resnet", "transformer", "73.6", "%"} <= set(text_of(app).split())


def test_without_a_choice_all_runs_are_listed(open_page, service):
    app = open_page("run")
    assert len(app.get("page_link")) == len(service.listed)


def test_without_any_run_the_demo_is_offered(open_page, service):
    service.listed.clear()
    assert "Try the demo" in labels(open_page("run"))


def test_the_way_back_to_the_list_clears_the_address(open_page, service):
    app = open_page("run", run="r-done")
    app.button(key="all-runs").click().run()
    assert "run" not in app.query_params
    assert len(app.get("page_link")) == len(service.listed)


def test_an_unknown_run_is_told_and_the_known_ones_listed(open_page, service):
    app = open_page("run", run="nothing")
    assert "There is no run 'nothing'." in text_of(app)
    assert len(app.get("page_link")) == len(service.listed)


@pytest.mark.parametrize("state", State)
def test_the_buttons_are_those_that_the_state_allows(state, open_page, service):
    service.listed[:] = [run("r-any", state, (submodel(0, "lenet", 2, state),))]
    shown = labels(open_page("run", run="r-any"))
    for event in (Event.PAUSE, Event.RESUME, Event.STOP):
        verb = wording.VERBS[event][0]
        assert (verb in shown) == (event in actions(state))
        assert (f"{verb} lenet" in shown) == (event in actions(state))


@pytest.mark.parametrize("state", [State.PAUSING, State.STOPPING])
def test_an_action_that_is_not_done_yet_shows_as_such(state, open_page, service):
    service.listed[:] = [replace(mid_flight(), state=state)]
    assert wording.STATES[state].sentence in text_of(open_page("run", run="r-live"))


def test_a_failed_run_shows_cause_and_remedy_of_itself_and_its_sub_model(open_page):
    words = text_of(open_page("run", run="r-failed"))
    for sentence in (
        "No sub-model could be finished.",
        "See the sub-models below.",
        "The loss became NaN.",
        "Lower the learning rate.",
    ):
        assert sentence in words


def test_an_interrupted_run_shows_cause_and_remedy_and_no_stale_banner(open_page):
    words = text_of(open_page("run", run="r-lost"))
    assert "The worker process died." in words and "Look into worker.log" in words
    assert "No word from the worker" not in words


def test_a_heartbeat_older_than_ten_seconds_is_told(open_page, service):
    service.listed[0] = replace(mid_flight(), heartbeat_age_s=10.5)
    assert "No word from the worker" in text_of(open_page("run", run="r-live"))


def test_a_run_without_a_step_draws_no_empty_charts(open_page):
    app = open_page("run", run="r-queued")
    assert charts(app) == []
    assert wording.NO_CURVES in text_of(app)


def test_a_stop_is_carried_out_only_after_the_question(open_page, service):
    app = open_page("run", run="r-live")
    app.button(key="stop-r-live-resnet").click().run()
    assert service.done == []
    assert "the other sub-models go on" in text_of(app)
    app.button(key="stop-yes").click().run()
    assert service.done == [("stop", "r-live", "resnet")]
    assert "stop-yes" not in {button.key for button in app.button}


def test_a_stop_can_be_thought_better_of(open_page, service):
    app = open_page("run", run="r-live")
    app.button(key="stop-r-live-").click().run()
    app.button(key="stop-no").click().run()
    assert service.done == []
    assert "stop-no" not in {button.key for button in app.button}


def test_a_state_that_moved_on_is_told_and_nothing_breaks(open_page, service, monkeypatch):
    def pause(run_id, submodel):
        raise IllegalTransition("second", "completed", "pause", [])

    monkeypatch.setattr(service, "pause", pause)
    app = open_page("run", run="r-queued")
    app.button(key="pause-r-queued-").click().run()
    assert not app.exception
    assert any("does not allow" in toast.value for toast in app.toast)


def test_only_finished_sub_models_can_be_downloaded(open_page):
    app = open_page("run", run="r-live")
    assert [button.label for button in app.get("download_button")] == ["Download lenet"]


def test_sub_models_names_and_causes_cannot_become_markup():
    evil = "<img src=x onerror=alert(1)>"
    view = replace(submodel(0, "lenet", 3, State.FAILED), name=evil, model_format=evil)
    for markup in (submodels.row(view), submodels.mini(view), submodels.values(run("r", State.FAILED, (view,)))):
        assert "<img" not in markup and "&lt;img" in markup


def test_the_name_of_a_run_cannot_become_markup(open_page, service):
    service.listed[0] = replace(mid_flight(), name="<script>alert(1)</script>")
    shown = html_of(open_page("run", run="r-live"))
    assert "<script" not in shown and "&lt;script" in shown
