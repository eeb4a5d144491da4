"""What policies would do, on pages: before a start, before a change, and afterwards."""

from tests.ui.fake_views import NAMES
from tests.ui.reading import button, press, text_of
from unifiednn_core.scheduling.registry import POLICIES
from unifiednn_core.views import wording


def test_build_shows_every_policy_below_the_choice(open_page, drafted):
    words = text_of(open_page("build", draft=drafted))
    assert "What each policy would do" in words and "not measured" in words
    assert all(wording.title(policy.name) in words for policy in POLICIES)
    assert "Mean turnaround" in words and "Fairness" in words


def test_an_empty_draft_has_no_forecast(open_page):
    assert "What each policy would do" not in text_of(open_page("build"))


def test_a_change_is_foreseen_before_it_is_applied(open_page, service):
    app = press(open_page("run", run="r-live"), "Adjust")
    before = text_of(app)
    next(box for box in app.number_input if box.label == "Epochs of resnet").set_value(500).run()
    words = text_of(app)
    assert "later" in words or "not known before" in words
    assert "later" not in before and not button(app, "Apply epochs").disabled and not service.done


def test_a_run_shows_predicted_beside_actual_finish(open_page, service):
    finish_s = {name: 10.0 + at for at, name in enumerate(NAMES)}
    kept = {
        "policy": "round_robin",
        "finish_s": finish_s,
        "makespan_s": 12.0,
        "mean_turnaround_s": 11.0,
        "basis": "measured",
        "renewed": False,
    }
    assert "Predicted and actual finish" not in text_of(open_page("run", run="r-live"))
    service.store.runs.update("r-live", environment={"forecast": kept})
    words = text_of(open_page("run", run="r-live"))
    assert "Prediction was" in words and "12.0 s" in words
