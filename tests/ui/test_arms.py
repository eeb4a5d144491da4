"""Baselines on the page of a hybrid, pages of baselines, and memory by use."""

from dataclasses import replace

import pytest

from pages._ui import arms
from tests.ui.fake_arms import FINGERPRINT, baseline, breakdown, comparison, hybrid, marks, prediction
from tests.ui.fake_views import mid_flight, queued
from tests.ui.reading import button, chart_names, charts, labels, press, text_of
from unifiednn_core.base.errors import BadInput
from unifiednn_core.base.units import MIB
from unifiednn_core.spec.lifecycle import State
from unifiednn_core.views.figures.layout import FAINT
from unifiednn_core.views.runs import Series

LIVE = replace(mid_flight(), fingerprint=FINGERPRINT)


def figures(app):
    """Figures of the page by their key, as the browser gets them."""
    return [chart["figure"] for chart in charts(app)]


def overlays(figure):
    drawn = [trace for trace in figure["data"] if trace["meta"]["kind"] == "baseline"]
    assert all(trace["line"]["color"] == FAINT for trace in drawn)
    return list(dict.fromkeys(trace["name"].split(",")[0] for trace in drawn))


def test_a_hybrid_without_a_baseline_offers_both_and_says_why(open_page, service):
    service.listed[:] = [LIVE]
    app = open_page("run", run="r-live")
    assert "No baseline yet." in text_of(app)
    assert {"Run concurrent", "Run sequential"} <= labels(app) and "Compare" not in labels(app)
    press(app, "Run concurrent")
    assert service.done == [("baseline", "r-live", "concurrent")]
    assert "waits for the device" in text_of(app)


@pytest.mark.parametrize("page", ["run", "compare"])
def test_a_double_click_on_a_baseline_cannot_start_the_other(page, open_page, service):
    service.listed[:] = [hybrid()]
    service.compared = comparison()
    app = open_page(page, run="r-hybrid")
    press(app, "Run concurrent")
    assert [button.label for button in app.button if button.label.startswith("Run ")] == [
        "Run concurrent",
        "Run sequential",
    ]
    assert button(app, "Run concurrent").disabled and "waits" in button(app, "Run concurrent").help
    assert not button(app, "Run sequential").disabled


@pytest.mark.parametrize("page", ["run", "compare"])
def test_a_click_at_the_moment_that_training_ends_is_not_lost(page, open_page, service, monkeypatch):
    service.listed[:] = [hybrid()]
    service.compared = comparison()
    app = open_page(page, run="r-hybrid")
    lived, any_lives = iter([True]), arms.any_lives
    monkeypatch.setattr(arms, "any_lives", lambda runs: next(lived, False) or any_lives(runs))
    press(app, "Run concurrent")
    assert next(lived, None) is None, "the page began while it trained"
    assert service.done == [("baseline", "r-hybrid", "concurrent")]


@pytest.mark.parametrize(("state", "reason"), [(State.STOPPED, "was stopped"), (State.FAILED, "failed")])
def test_of_a_run_without_a_result_no_baseline_is_offered_and_the_reason_is_there(state, reason, open_page, service):
    service.listed[:] = [replace(hybrid(), state=state)]
    found = button(open_page("run", run="r-hybrid"), "Run concurrent")
    assert found.disabled and reason in found.help


def test_the_curves_of_the_newest_baselines_are_drawn_dashed_until_they_are_hidden(open_page, service):
    service.listed[:] = [LIVE, baseline("concurrent", State.RUNNING), baseline("sequential")]
    app = open_page("run", run="r-live")
    for figure in figures(app)[:2]:
        assert overlays(figure) == ["concurrent", "sequential"]
    app.toggle(key="arms-shown-r-live").set_value(False).run()
    for figure in figures(app)[:2]:
        assert overlays(figure) == []


def test_a_baseline_that_has_not_trained_does_not_hide_one_that_has(open_page, service):
    waiting = replace(baseline("concurrent", State.QUEUED), run_id="r-waiting")
    service.listed[:] = [LIVE, waiting, baseline("concurrent")]
    app = open_page("run", run="r-live")
    assert overlays(figures(app)[0]) == ["concurrent"]


def test_a_baseline_that_was_there_before_is_said_to_be_reused(open_page, service):
    old = replace(baseline("concurrent"), ended_at_s=LIVE.created_at_s - 60)
    service.listed[:] = [LIVE, old]
    assert "reused, from" in text_of(open_page("run", run="r-live"))
    service.listed[1] = replace(old, ended_at_s=LIVE.created_at_s + 60)
    assert "reused" not in text_of(open_page("run", run="r-live"))


def test_of_a_changed_run_no_baseline_is_offered_and_the_reason_is_there(open_page, service, monkeypatch):
    service.listed[:] = [hybrid()]
    monkeypatch.setattr(service.comparisons, "why_no_baseline", lambda run_id: "This run changed.")
    found = button(open_page("run", run="r-hybrid"), "Run sequential")
    assert found.disabled and found.help == "This run changed."


def test_a_baseline_that_is_refused_is_told(open_page, service, monkeypatch):
    def start_baseline(run_id, mode):
        raise BadInput.of("Changed since", field=run_id, message="It was changed.", remedy="Submit it again.")

    service.listed[:] = [LIVE]
    monkeypatch.setattr(service.comparisons, "start_baseline", start_baseline)
    app = press(open_page("run", run="r-live"), "Run concurrent")
    assert any("It was changed" in toast.value for toast in app.toast)


def test_a_baseline_that_failed_can_be_run_again(open_page, service):
    service.listed[:] = [LIVE, baseline("concurrent", State.FAILED)]
    app = open_page("run", run="r-live")
    assert not button(app, "Run concurrent").disabled and not button(app, "Run sequential").disabled


def test_the_figures_of_an_ended_hybrid_say_their_difference(open_page, service):
    service.listed[:] = [hybrid(), baseline("concurrent"), baseline("sequential")]
    service.compared = comparison()
    words = text_of(open_page("run", run="r-hybrid"))
    assert "53 % less memory than concurrent" in words and "36 % less time than concurrent" in words


def test_runs_of_another_fingerprint_are_no_baselines_of_it(open_page, service):
    service.listed[:] = [LIVE, replace(baseline("concurrent"), fingerprint="e" * 64)]
    assert "No baseline yet." in text_of(open_page("run", run="r-live"))


@pytest.mark.parametrize("mode", ["concurrent", "sequential"])
def test_a_baseline_has_a_page_of_its_own_where_it_can_only_be_stopped(mode, open_page, service):
    service.listed[:] = [baseline(mode, State.RUNNING)]
    app = open_page("run", run=f"r-{mode}")
    words = text_of(app)
    assert f"{mode.capitalize()} baseline" in words and "Round robin" not in words
    assert len(charts(app)) == 4
    assert labels(app) & {"Pause", "Save now", "Adjust", "Add a sub-model", "Stop lenet", "Run concurrent"} == set()
    assert "Stop" in labels(app)
    app.button(key=f"stop-r-{mode}-").click().run()
    assert "Discard…" not in labels(app)
    app.button(key="stop-yes").click().run()
    assert service.done == [("stop", f"r-{mode}", None)]


@pytest.mark.parametrize("page", ["now", "run"])
def test_baselines_are_labelled_in_every_list(page, open_page, service):
    service.listed[:] = [baseline("concurrent", State.RUNNING), baseline("sequential"), LIVE]
    words = text_of(open_page(page))
    assert "Concurrent baseline" in words and "Sequential baseline" in words


def test_a_baseline_that_runs_can_only_be_stopped_on_the_first_page(open_page, service):
    service.listed[:] = [baseline("concurrent", State.RUNNING)]
    assert labels(open_page("now")) & {"Pause", "Save now", "Stop"} == {"Stop"}


def test_memory_is_shown_by_use_with_its_notes_and_the_key_of_its_marks(open_page, service):
    note = "NVML is absent: figures are those of the process alone."
    service.listed[:] = [replace(LIVE, breakdown=breakdown(), marks=marks(), memory_notes=(note,))]
    app = open_page("run", run="r-live")
    memory = figures(app)[3]
    assert {"context", "A weights", "unexplained", "total"} <= {trace["name"] for trace in memory["data"]}
    assert note in text_of(app) and charts(app)[3]["below"] == "▼ load · | switch"


def test_a_gpu_run_shows_how_busy_the_card_was(open_page, service):
    service.listed[:] = [replace(LIVE, utilisation=Series((0.0, 1.0), (0.2, 0.9)), power_w=Series((0.0,), (90.0,)))]
    app = open_page("run", run="r-live")
    assert chart_names(app) == ["loss", "accuracy", "schedule", "gpu", "memory"]
    assert charts(app)[2]["cell"] == charts(app)[3]["cell"], "at most four are in view"


def test_a_run_says_what_it_cost(open_page, service):
    service.listed[:] = [replace(LIVE, cpu_s=90.0, gpu_s=40.0, energy_j=7200.0)]
    assert "CPU 1 min 30 s · GPU 40.0 s · 2.0 Wh" in text_of(open_page("run", run="r-live"))


def test_the_prediction_stands_beside_the_measured_peak(open_page, service):
    service.listed[:] = [replace(LIVE, prediction=prediction(), peak_memory_bytes=400 * MIB)]
    app = open_page("run", run="r-live")
    assert "peak 400 MiB · predicted 412 MiB" in text_of(app) and "forecast exceeded" not in text_of(app)
    app.session_state["details"] = "Memory"
    words = text_of(app.run())
    assert "3 % above" in words and "Equation 1" in words and "300 MiB" in words
    assert "measured before" in words and "estimated" in words


def test_a_waiting_run_says_what_has_to_be_free(open_page, service):
    service.listed[:] = [replace(queued(), waits_for="900 MiB of cuda:0, 412 MiB are free")]
    assert "It waits for 900 MiB of cuda:0, 412 MiB are free." in text_of(open_page("run", run="r-queued"))


def test_a_peak_is_told_from_one_and_a_half_times_the_prediction_on(open_page, service):
    for peak_mib, told in ((617, False), (618, True)):  # 412 are predicted
        service.listed[:] = [replace(LIVE, prediction=prediction(), peak_memory_bytes=peak_mib * MIB)]
        assert ("forecast exceeded" in text_of(open_page("run", run="r-live"))) is told
