"""The comparison: verdicts of every kind, curves, memory, schedule, what is missing, what can be taken along."""

from dataclasses import replace

import pytest

from tests.ui.fake_arms import arm, baseline, comparison, hybrid, verdict, withheld
from tests.ui.fake_views import sha
from tests.ui.reading import button, chart_names, downloads, html_of, labels, press, text_of
from unifiednn_core.spec.lifecycle import State

CHARTS = ["loss-epochs", "loss-seconds", "memory", "schedule"]


@pytest.fixture
def compared(service):
    """A hybrid with both baselines."""
    service.listed[:] = [hybrid(), baseline("concurrent"), baseline("sequential"), *service.listed]
    service.compared = comparison()
    return service


def test_the_verdict_comes_first_then_arms_and_charts(open_page, compared):
    app = open_page("compare", run="r-hybrid")
    words = text_of(app)
    assert (
        words.index("53 % less memory than concurrent")
        < words.index("The arms")
        < words.index("Each sub-model in each arm")
    )
    assert "39 % more memory than sequential" in words and "no difference from sequential" in words
    assert "Weights: identical, every bit of every sub-model." in words
    assert chart_names(app) == CHARTS


@pytest.mark.parametrize("run_id", ["r-concurrent", "r-sequential"])
def test_a_baseline_leads_to_the_comparison_of_its_hybrid(run_id, open_page, compared):
    assert "53 % less memory than concurrent" in text_of(open_page("compare", run=run_id))


def test_accuracy_can_be_compared_instead_of_loss(open_page, compared):
    app = open_page("compare", run="r-hybrid")
    app.segmented_control(key="compare-quantity").set_value("accuracy").run()
    assert not app.exception and chart_names(app)[:2] == ["accuracy-epochs", "accuracy-seconds"]


def test_with_both_baselines_nothing_more_is_offered(open_page, compared):
    assert not [label for label in labels(open_page("compare", run="r-hybrid")) if label.startswith("Run ")]


def test_a_withheld_verdict_says_why_plainly(open_page, service):
    why = "The arms differ: hybrid with 1 thread, concurrent with 2."
    service.listed[:] = [hybrid(), baseline("concurrent", State.FAILED), baseline("sequential")]
    cause = "MemoryError: no memory left"
    dead = arm("concurrent", problem="It failed.")
    dead = replace(dead, submodels=(replace(dead.submodels[0], cause=cause), *dead.submodels[1:]))
    service.compared = comparison(
        baselines={"concurrent": dead},
        verdicts={"concurrent": withheld("concurrent", why), "sequential": verdict("sequential")},
    )
    app = open_page("compare", run="r-hybrid")
    words = text_of(app)
    assert why in words and cause in words and "It failed." in words
    assert not button(app, "Run concurrent").disabled
    assert "54 % less memory than sequential" in words, "the other verdict stands"


def test_a_baseline_that_trains_is_followed_and_can_be_stopped(open_page, service):
    live = baseline("concurrent", State.RUNNING)
    service.listed[:] = [hybrid(), live]
    why = "The concurrent baseline has not ended yet."
    service.compared = comparison(baselines={}, verdicts={"concurrent": withheld("concurrent", why)})
    app = open_page("compare", run="r-hybrid")
    assert "Running" in text_of(app) and why in text_of(app)
    assert chart_names(app) == CHARTS
    app.button(key="stop-r-concurrent-").click().run()
    assert "you can run it again" in text_of(app) and "Discard…" not in labels(app)
    app.button(key="stop-yes").click().run()
    assert service.done == [("stop", "r-concurrent", None)]


def test_hashes_stand_behind_a_tab_and_the_environment_behind_another(open_page, compared):
    app = open_page("compare", run="r-hybrid")
    assert sha("lenet") not in html_of(app)
    app.session_state["compare-tabs"] = "Weights"
    assert sha("lenet") in html_of(app.run())
    app.session_state["compare-tabs"] = "Environment"
    assert "AMD EPYC" in text_of(app.run())
    app.session_state["compare-tabs"] = "Spec and command"
    app.run()
    assert not app.exception and any("unifiednn compare" in code.value for code in app.code)


def test_report_and_json_can_be_taken_along(open_page, compared):
    assert downloads(open_page("compare", run="r-hybrid")) == [
        ("Report", "files/reports/r-hybrid.html"),
        ("JSON", "files/comparisons/r-hybrid.json"),
    ]


def test_without_a_choice_the_hybrids_are_listed_with_their_baselines(open_page, compared):
    app = open_page("compare")
    hybrids = [view for view in compared.listed if view.mode == "hybrid"]
    assert len(app.get("page_link")) == len(hybrids)
    words = text_of(app)
    assert "concurrent done, sequential done" in words and "no baseline yet" in words


def test_without_any_run_the_demo_is_offered_with_its_baselines(open_page, service):
    service.listed.clear()
    app = open_page("compare")
    assert "Nothing to compare yet" in text_of(app)
    press(app, "Try the demo")
    assert service.plans == [(("concurrent", "sequential"), False)]


def test_an_unknown_run_is_told_and_the_hybrids_listed(open_page, compared):
    app = open_page("compare", run="nothing")
    assert "There is no run 'nothing'." in text_of(app) and app.get("page_link")


def test_a_baseline_of_no_hybrid_is_told(open_page, service):
    service.listed.insert(0, baseline("concurrent"))
    assert "a baseline without a hybrid" in text_of(open_page("compare", run="r-concurrent"))


def test_the_list_is_one_click_away(open_page, compared):
    app = press(open_page("compare", run="r-hybrid"), "All comparisons")
    assert "run" not in app.query_params and app.get("page_link")


def test_buttons_lead_to_the_run(open_page, compared):
    app = open_page("compare", run="r-hybrid")
    button(app, "Open the run").click().run()
    assert not app.exception and app.query_params["run"] in ("r-hybrid", ["r-hybrid"])


def test_any_runs_stand_side_by_side(open_page, compared):
    app = open_page("compare", runs="r-hybrid,r-concurrent,r-hybrid/lenet")
    words = text_of(app)
    assert "Figures; differences are against the first" in words and "demo / lenet" in words
    assert chart_names(app) == ["loss", "accuracy", "memory", "schedule"]
    assert ("Report", "files/selections.html?runs=r-hybrid%2Cr-concurrent%2Cr-hybrid%2Flenet") in downloads(app)


def test_runs_are_chosen_by_name(open_page, compared):
    app = open_page("compare")
    assert button(app, "Compare").disabled
    app.multiselect(key="sides").set_value(["r-hybrid", "r-sequential"]).run()
    press(app, "Compare")
    assert "Figures; differences are against the first" in text_of(app)
    press(app, "All comparisons")
    assert app.multiselect(key="sides")


@pytest.mark.parametrize("runs", ["r-hybrid", "r-hybrid,r-hybrid", "r-hybrid,r-nothing", "r-hybrid,r-concurrent/x"])
def test_a_choice_that_cannot_be_compared_says_why(runs, open_page, compared):
    app = open_page("compare", runs=runs)
    assert "Side by side" in text_of(app) and not chart_names(app)
    assert any(word in text_of(app) for word in ("Choose 2 to 6", "There is no run", "has no sub-model"))
