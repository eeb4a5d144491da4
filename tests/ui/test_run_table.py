"""The list of runs: filters, pages, sorting, ticks, deletion."""

from dataclasses import replace

import pytest

from pages._ui import run_table
from tests.ui.fake_views import ended, run, submodel
from tests.ui.reading import opens, text_of
from unifiednn_core.base.errors import NotFound
from unifiednn_core.spec.lifecycle import ENDED, State
from unifiednn_core.store import run_lists


@pytest.fixture
def many(service):
    """60 ended runs."""
    parts = (submodel(0, "lenet", 2, State.COMPLETED),)
    service.listed[:] = [
        replace(run(f"r-{place:02}", State.COMPLETED, parts), name=f"run {place:02}", created_at_s=1e9 + place)
        for place in range(60)
    ]
    return service


def test_pages_are_turned_and_a_filter_begins_at_the_first(open_page, many):
    app = open_page("run")
    assert opens(app) == [f"r-{place:02}" for place in range(59, 34, -1)] and "1 to 25 of 60" in text_of(app)
    assert app.button(key="runs-newer").disabled
    app.button(key="runs-older").click().run()
    app.button(key="runs-older").click().run()
    assert opens(app) == [f"r-{place:02}" for place in range(9, -1, -1)] and app.button(key="runs-older").disabled
    app.button(key="runs-newer").click().run()
    assert "26 to 50 of 60" in text_of(app)
    app.text_input(key="runs-text").input("RUN 1").run()
    assert opens(app) == [f"r-{place}" for place in range(19, 9, -1)]
    app.text_input(key="runs-text").input("no such").run()
    assert "No run matches" in text_of(app)


def test_a_text_is_looked_for_in_the_newest_runs_and_on_request_in_all(open_page, many, monkeypatch):
    monkeypatch.setattr(run_lists, "SEARCHED", 5)
    app = open_page("run")
    assert "Searched in" not in text_of(app)
    app.text_input(key="runs-text").input("RUN 1").run()
    assert "No run matches" in text_of(app) and "Searched in the newest 5 runs." in text_of(app)
    app.button(key="runs-search-all").click().run()
    assert opens(app) == [f"r-{place}" for place in range(19, 9, -1)] and "Searched in" not in text_of(app)
    app.text_input(key="runs-text").input("run 5").run()
    assert opens(app) == [f"r-{place}" for place in range(59, 54, -1)], "another text begins anew"


def test_filters_by_state_and_time(open_page, service):
    app = open_page("run")
    app.multiselect(key="runs-states").select(State.QUEUED).run()
    assert opens(app) == ["r-queued"]
    app.multiselect(key="runs-states").unselect(State.QUEUED).run()
    app.selectbox(key="runs-period").select("Last 24 hours").run()
    assert not app.exception and set(opens(app)) <= {one.run_id for one in service.listed}


def test_a_head_sorts_and_sorts_the_other_way(open_page, many, said):
    said["runs"] = {"sorted": "name"}
    app = open_page("run")
    app.run()
    assert opens(app)[0] == "r-00"
    said["runs"] = {"sorted": "name"}
    app.run()
    app.run()
    assert opens(app)[0] == "r-59" and not app.exception


def test_a_click_opens_a_run(open_page, service, said):
    said["runs"] = {"opened": "r-done"}
    app = open_page("run")
    assert not app.exception and app.query_params["run"] in ("r-done", ["r-done"])


@pytest.mark.parametrize(("count", "fits"), [(0, False), (1, False), (2, True), (6, True), (7, False)])
def test_two_to_six_are_compared(open_page, many, said, monkeypatch, count, fits):
    went = []
    monkeypatch.setattr("streamlit.switch_page", lambda page, query_params: went.append(query_params))
    ticked = [f"r-{place:02}" for place in range(count)]
    said["runs"] = {"ticked": ticked}
    app = open_page("run")
    assert app.button(key="runs-compare").disabled == (not fits)
    if fits:
        app.button(key="runs-compare").click().run()
        assert went == [{"runs": ",".join(ticked)}]


def test_runs_are_deleted_after_a_question_and_open_ones_stay(open_page, service, said):
    said["runs"] = {"ticked": ["r-done", "r-live"]}
    app = open_page("run")
    app.button(key="runs-delete").click().run()
    assert "Stop it first." in text_of(app) and "trained model" in text_of(app)
    app.button(key="delete-no").click().run()
    assert service.runs.observe("r-done")
    app.button(key="runs-delete").click().run()
    assert app.button(key="delete-yes").label == "Delete 1 run"
    app.button(key="delete-yes").click().run()
    assert not app.exception
    with pytest.raises(NotFound):
        service.runs.observe("r-done")
    assert service.runs.observe("r-live") and not service.home.run("r-done").exists()
    assert ("delete_run", "r-done") in {(line.action, line.subject) for line in service.people.audit()}
    assert "r-done" not in opens(app)


def test_ticks_are_cleared(open_page, service, said):
    said["runs"] = {"ticked": ["r-done"]}
    app = open_page("run")
    said.clear()
    app.button(key="runs-clear").click().run()
    assert "runs-clear" not in {button.key for button in app.button} and not app.exception


def test_a_verdict_is_made_once_for_an_ended_run(open_page, service, monkeypatch):
    run_table._verdict_of.clear()
    asked = []
    monkeypatch.setattr(run_table.arms, "comparison", lambda run_id: asked.append(run_id))
    monkeypatch.setattr(run_table.arms, "difference_text", lambda comparison, ratio: "54 % less memory")
    twin = replace(ended(), run_id="r-twin", mode="concurrent")
    service.listed[:] = [one for one in (*service.listed, twin) if one.state in ENDED]
    app = open_page("run")
    shown = "54 % less memory" in text_of(app)
    app.run()
    assert len(asked) == len(set(asked)) and shown == bool(asked)
