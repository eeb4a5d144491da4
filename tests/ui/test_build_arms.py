"""What a draft says about baselines and memory, and what a check predicts."""

from dataclasses import replace

import pytest

from tests.ui.fake_arms import prediction
from tests.ui.fake_views import submitted_demo
from tests.ui.reading import press, text_of
from unifiednn_core.base.units import MIB


@pytest.mark.parametrize(
    ("choice", "modes", "when", "first"),
    [
        ("None", (), "after", False),
        ("Concurrent", ("concurrent",), "after", False),
        ("Sequential", ("sequential",), "before", True),
        ("Both", ("concurrent", "sequential"), "after", False),
        ("Both", ("concurrent", "sequential"), "before", True),
    ],
)
def test_baselines_are_chosen_before_or_after_and_kept_in_the_draft(
    choice, modes, when, first, open_page, service, drafted
):
    app = open_page("build", draft=drafted)
    app.segmented_control(key="run-baselines").set_value("Both").run()
    app.segmented_control(key="run-baselines-when").set_value(when).run()
    app.segmented_control(key="run-baselines").set_value(choice).run()
    assert service.drafts[drafted]["baselines"] == list(modes)
    app = open_page("build", draft=drafted)
    assert app.segmented_control(key="run-baselines").value == choice
    press(app, "Start training")
    assert service.plans == [(modes, first)] and service.submitted[0].submodels == submitted_demo()


def test_a_check_shows_the_predicted_memory_beside_the_paper_and_the_budget(open_page, service, drafted):
    service.predicted = replace(prediction(), budget_bytes=500 * MIB, budget_text="of cpu")
    app = press(open_page("build", draft=drafted), "Check")
    words = text_of(app)
    assert "Predicted peak 412 MiB under Round robin" in words
    assert "Smallest of all policies 390 MiB First come" in words
    assert "Paper, equation 2 300 MiB" in words and "Equation 1" in words
    assert "Budget 500 MiB 88 MiB free · of cpu" in words
    assert "measured before" in words and "estimated" in words


def test_a_prediction_beyond_the_budget_says_how_much_is_lacking(open_page, service, drafted):
    service.predicted = replace(prediction(), budget_bytes=400 * MIB, budget_text="memory_limit_bytes of the spec")
    words = text_of(press(open_page("build", draft=drafted), "Check"))
    assert "12 MiB short · memory_limit_bytes of the spec" in words


def test_a_memory_limit_reaches_the_spec_and_one_to_the_byte_stays_so(open_page, service, drafted):
    app = open_page("build", draft=drafted)
    app.number_input(key="run-memory-limit").set_value(512).run()
    assert service.drafts[drafted]["memory_limit_bytes"] == 512 * MIB
    service.drafts[drafted]["memory_limit_bytes"] = 512 * MIB + 7
    press(open_page("build", draft=drafted), "Start training")
    assert service.submitted[0].memory_limit_bytes == 512 * MIB + 7
