import time
from dataclasses import replace

import pytest

from pages._ui import submodels
from tests.ui.fake_arms import certificate
from tests.ui.fake_views import START_S, ended, mid_flight, run, submodel
from tests.ui.reading import chart_names, downloads, html_of, labels, opens, text_of
from unifiednn_core.base.errors import IllegalTransition
from unifiednn_core.preflight.report import CertificateCheck
from unifiednn_core.spec.lifecycle import Event, State
from unifiednn_core.spec.run_query import KeptQuery
from unifiednn_core.views import wording
from unifiednn_core.views.runs import EventView
from unifiednn_core.views.sweeps import sweep_rows


def test_a_live_run_shows_four_charts_and_all_sub_models(open_page):
    app = open_page("run", run="r-live")
    assert chart_names(app) == ["loss", "accuracy", "schedule", "memory"]
    assert {"lenet", "resnet", "transformer", "73.6", "%"} <= set(text_of(app).split())


def test_one_that_does_not_learn_is_told_with_its_likely_causes_until_it_learns(open_page, service):
    found = {"sign": "chance", "epoch": 2, "learning_rate": 0.01, "since_s": time.time()}
    found |= {"test_loss": 2.31, "test_accuracy": 0.09, "constant_loss": 2.3026, "constant_accuracy": 0.1}
    first, *others = mid_flight().submodels
    service.listed[:] = [replace(mid_flight(), submodels=(replace(first, not_learning=found), *others))]
    words = text_of(open_page("run", run="r-live"))
    told = "lenet does not learn: after 2 epochs the loss on the test data is 2.310, the accuracy 9.0 %"
    assert words.count("Does not learn") == 1 and told in words
    assert sorted(("Scale:", "Labels:", "Learning rate (0.01)", "Frozen"), key=words.index)[0] == "Scale:"
    app = open_page("now")
    assert told in text_of(app) and "u-doubt" in html_of(app)
    app.button(key="dismiss-r-live-lenet").click().run()
    assert told not in text_of(app)
    service.listed[:] = [mid_flight()]
    assert "Does not learn" not in text_of(open_page("run", run="r-live"))


def test_without_a_choice_all_runs_are_listed(open_page, service):
    app = open_page("run")
    assert len(opens(app)) == len(service.listed)


def test_without_any_run_the_demo_is_offered(open_page, service):
    service.listed.clear()
    assert "Try the demo" in labels(open_page("run"))


def test_the_way_back_to_the_list_clears_the_address(open_page, service):
    app = open_page("run", run="r-done")
    app.menu_button(key="run-menu").click("All runs").run()
    assert "run" not in app.query_params
    assert len(opens(app)) == len(service.listed)


def test_an_unknown_run_is_told_and_the_known_ones_listed(open_page, service):
    app = open_page("run", run="nothing")
    assert "There is no run 'nothing'." in text_of(app)
    assert len(opens(app)) == len(service.listed)


@pytest.mark.parametrize("state", State)
def test_the_buttons_are_those_that_the_view_allows(state, open_page, service):
    service.listed[:] = [run("r-any", state, (submodel(0, "lenet", 2, state),))]
    view = service.runs.observe("r-any")
    app = open_page("run", run="r-any")
    shown = labels(app)
    assert ("Save now" in app.menu_button(key="run-menu").options) == (Event.SAVE in view.actions)
    for event in (Event.PAUSE, Event.RESUME, Event.SAVE, Event.STOP):
        verb = wording.VERBS[event][0]
        if event is not Event.SAVE:  # of the whole run it is in the menu
            assert (verb in shown) == (event in view.actions)
        assert (f"{verb} lenet" in shown) == (event in view.submodels[0].actions)


def test_a_checkpoint_can_be_asked_for(open_page, service):
    app = open_page("run", run="r-live")
    app.button(key="save-r-live-resnet").click().run()
    app.menu_button(key="run-menu").click("Save now").run()
    assert not app.exception
    assert service.done == [("save", "r-live", "resnet"), ("save", "r-live", None)]


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
    assert "The worker has been silent" not in words


def test_a_heartbeat_older_than_ten_seconds_is_told(open_page, service):
    service.listed[0] = replace(mid_flight(), heartbeat_age_s=10.5)
    assert "The worker has been silent" in text_of(open_page("run", run="r-live"))


def test_a_run_without_a_step_draws_no_empty_charts(open_page):
    app = open_page("run", run="r-queued")
    assert chart_names(app) == []
    assert wording.NO_CURVES in text_of(app)


def test_a_state_that_moved_on_is_told_and_nothing_breaks(open_page, service, monkeypatch):
    def pause(run_id, submodel):
        raise IllegalTransition("second", "completed", "pause", [])

    monkeypatch.setattr(service.runs, "pause", pause)
    app = open_page("run", run="r-queued")
    app.button(key="pause-r-queued-").click().run()
    assert not app.exception
    assert any("does not allow" in toast.value for toast in app.toast)


def test_finished_models_and_newest_checkpoints_can_be_downloaded(open_page, service):
    app = open_page("run", run="r-live")
    offered = downloads(app)
    assert ("Download lenet, 0.4 MiB", "files/models/r-live/lenet") in offered
    assert [label for label, _ in offered if "checkpoint" not in label] == ["Download lenet, 0.4 MiB"]
    assert [label for label, _ in offered if "checkpoint" in label] == [
        f"Download checkpoint of {submodel.name}" for submodel in mid_flight().submodels
    ]


def test_the_table_tells_step_and_age_of_the_newest_checkpoint(open_page, service):
    first, *others = mid_flight().submodels
    first = replace(first, checkpoint_step=1_234, checkpoint_at_s=time.time() - 3600 * 2)
    service.listed[0] = replace(mid_flight(), submodels=(first, *others))
    assert "step 1,234 2 h ago" in text_of(open_page("run", run="r-live"))


def test_the_name_of_a_run_cannot_become_markup(open_page, service):
    service.listed[0] = replace(mid_flight(), name="<script>alert(1)</script>")
    shown = html_of(open_page("run", run="r-live"))
    assert "<script" not in shown and "&lt;script" in shown


@pytest.mark.parametrize(
    ("deadline", "due_in_s", "text"),
    [
        ("holds", 90.0, "due in 1 min 30 s"),
        ("late", 5.0, "due in 5.0 s, will be missed"),
        (None, 9.0, "due in 9.0 s"),
        ("met", None, "deadline met"),
        ("missed", -5.0, "deadline missed"),
        (None, None, ""),
    ],
)
def test_how_a_deadline_stands_shows_on_run_and_now(deadline, due_in_s, text):
    view = replace(submodel(0, "lenet", 3, State.RUNNING), deadline=deadline, due_in_s=due_in_s)
    for markup in (submodels.row(run("r", State.RUNNING, (view,)), view), submodels.mini(view)):
        assert text in markup if text else "due in" not in markup and "deadline" not in markup


def test_the_members_of_a_sweep_are_listed_best_first_with_what_they_vary(open_page, service):
    names = ("net-lr0_1", "net-lr0_01", "other")
    parts = tuple(
        replace(submodel(place, name, 2, State.COMPLETED), test_accuracy=share)
        for place, (name, share) in enumerate(zip(names, (0.5, 0.9, 0.7), strict=True))
    )
    asked = [
        {"name": name, "hyperparameters": {"learning_rate": rate, "optimizer_args": {"momentum": 0.9}}}
        for name, rate in zip(names, (0.1, 0.01, 0.3), strict=True)
    ]
    spec = {"submodels": [one | {"sweep_of": "net"} for one in asked[:2]] + asked[2:]}
    view = replace(run("r-sweep", State.COMPLETED, parts), spec=spec)
    assert [list(row.items())[:2] for row in sweep_rows(view)["net"]] == [
        [("Sub-model", "net-lr0_01"), ("learning rate", "0.01")],
        [("Sub-model", "net-lr0_1"), ("learning rate", "0.1")],
    ]
    service.listed[:] = [view]
    words = text_of(open_page("run", run="r-sweep"))
    assert "Sweep net" in words and "2 members, best first" in words


def opened_tab(app, name):
    app.session_state["details"] = name
    app.run()
    assert not app.exception, [error.value for error in app.exception]
    return app


def test_events_are_filtered_by_text_level_and_sub_model(open_page, service):
    events = (
        EventView(at_s=1.0, submodel="lenet", kind="state", message="lenet is queued."),
        EventView(at_s=2.0, submodel="resnet", kind="warning", message="resnet has a slow kernel."),
        EventView(at_s=3.0, submodel=None, kind="error", message="The data changed."),
    )
    service.listed[0] = replace(mid_flight(), events=events)
    app = open_page("run", run="r-live")
    app.text_input(key="events-words").set_value("slow").run()
    words = text_of(app)
    assert "resnet has a slow kernel." in words and "lenet is queued." not in words and "1 of 3 lines" in words
    app.text_input(key="events-words").set_value("").run()
    app.selectbox(key="events-level").set_value("error").run()
    assert "The data changed." in text_of(app) and "slow kernel" not in text_of(app)
    app.selectbox(key="events-level").set_value("info").run()
    app.selectbox(key="events-who").set_value("lenet").run()
    assert "lenet is queued." in text_of(app) and "The data changed." not in text_of(app)


def test_the_log_of_the_worker_can_be_read_filtered_and_downloaded(open_page, service):
    log = service.home.log("r-live")
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("all is well with lenet\nUserWarning: resnet is slow\n")
    app = opened_tab(open_page("run", run="r-live"), "Logs")
    shown = app.code[-1].value
    assert shown == "all is well with lenet\nUserWarning: resnet is slow"
    assert ("Download events and log", "files/logs/r-live.txt") in downloads(app)
    app.selectbox(key="worker-level").set_value("warning").run()
    assert app.code[-1].value == "UserWarning: resnet is slow"
    app.selectbox(key="worker-who").set_value("lenet").run()
    assert app.code[-1].value == ""
    assert "the worker wrote nothing" in text_of(opened_tab(open_page("run", run="r-done"), "Logs")).lower()


def test_the_title_of_the_tab_tells_the_progress(open_page, monkeypatch):
    titles = []
    monkeypatch.setattr("streamlit.set_page_config", lambda **given: titles.append(given.get("page_title")))
    open_page("run", run="r-live")
    assert titles[-1] == "74 % demo · UnifiedNN"
    open_page("run", run="r-done")
    assert titles[-1] == "Completed demo · UnifiedNN"


def test_an_ended_run_offers_all_models_in_one_file_and_each_on_a_card(open_page, service):
    app = open_page("run", run="r-done")
    offered = downloads(app)
    assert ("Download all, 1.2 MiB", "files/models/r-done") in offered
    assert html_of(app).count('class="u-download u-primary"') == 1
    for name in ("lenet", "resnet", "transformer"):  # in its row and on its card
        assert offered.count((f"Download {name}, 0.4 MiB", f"files/models/r-done/{name}")) == 2
    assert not [label for label, _ in downloads(open_page("run", run="r-queued")) if label.startswith("Download")]


@pytest.mark.parametrize(("key", "names"), [("again-r-done-", 3), ("again-r-done-resnet", 1)])
def test_a_run_and_one_of_its_sub_models_can_be_trained_again(key, names, open_page, service):
    app = open_page("run", run="r-done")
    app.button(key=key).click().run()
    assert not app.exception
    [draft] = service.drafts.values()
    assert len(draft["submodels"]) == names


def test_a_comparison_opens_from_the_head_of_an_ended_run(open_page, service):
    app = open_page("run", run="r-done")
    app.button(key="open-compare-head").click().run()
    assert not app.exception and app.query_params["run"] in ("r-done", ["r-done"])
    assert "again-r-done-" not in {button.key for button in app.button}, "another page is open"


def test_a_certificate_is_shown_with_its_hash_its_verdict_and_a_snippet_to_copy(open_page, service):
    first, second, third = ended().submodels
    parts = replace(first, certificate=certificate("lenet", holds=True)), replace(second, certify_at_s=START_S), third
    service.listed[:] = [replace(ended(), submodels=parts)]
    app = open_page("run", run="r-done")
    words = text_of(app)
    for told in (
        "Certificate holds",
        "computes exactly what the hybrid computed",
        "Outputs equal, bit for bit",
        "torch 2.13",
    ):
        assert told in words
    assert first.state_sha256 in words
    assert "torch.export.load" in app.code[0].value
    assert words.count("Verifying: ") == 1 == words.count("No certificate: "), "of the others"
    assert " verifying " in words, "where the seal will be"
    assert "does not hold" not in words


def test_a_certificate_without_compared_outputs_is_not_green(open_page, service):
    unknown = CertificateCheck(what="outputs", outcome="not compared", text="It was trained on a GPU.")
    known = certificate("lenet", holds=True)
    known = known.model_copy(update={"compared": (known.compared[0], unknown)})
    first, *others = ended().submodels
    service.listed[:] = [replace(ended(), submodels=(replace(first, certificate=known), *others))]
    words = text_of(open_page("run", run="r-done"))
    assert "Weights equal, outputs not compared" in words and "Certificate holds" not in words
    kept = [one for one in service.library.kept(KeptQuery("model")).models if one.certificate]
    assert [(one.submodel, one.certificate) for one in kept] == [(first.name, "weights")]


def test_a_certificate_that_does_not_hold_is_told_at_the_top(open_page, service):
    first, *others = ended().submodels
    service.listed[:] = [
        replace(ended(), submodels=(replace(first, certificate=certificate("lenet", holds=False)), *others))
    ]
    words = text_of(open_page("run", run="r-done"))
    assert words.index("lenet: the certificate does not hold") < words.index("Makespan")
    assert "Outputs of 8 probes: 3 bits." in words and "Certificate does not hold" in words


def test_an_ended_run_is_deleted_from_its_menu_after_the_question(open_page, service):
    app = open_page("run", run="r-done")
    app.menu_button(key="run-menu").click("Delete…").run()
    assert service.runs.observe("r-done"), "it only asks"
    app.button(key="delete-yes").click().run()
    assert not app.exception, [error.value for error in app.exception]
    assert "r-done" not in {view.run_id for view in service.runs.runs()}
    assert "run" not in app.query_params and "There is no run" not in text_of(app)
    assert "Delete…" not in open_page("run", run="r-live").menu_button(key="run-menu").options
