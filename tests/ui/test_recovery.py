"""What the run page says and offers after a crash, and for a sub-model in quarantine."""

from dataclasses import replace

import pytest

from tests.ui.fake_views import START_S, failed, mid_flight, quarantined, recovered, run, submodel
from tests.ui.reading import html_of, labels, press, text_of
from unifiednn_core.spec.lifecycle import State
from unifiednn_core.views.runs import CommandView


def test_a_recovered_run_says_what_it_cost(open_page, service):
    service.listed[:] = [recovered()]
    words = text_of(open_page("run", run="r-recovered"))
    assert "Recovered 2 times; 37 lost steps trained again and counted once." in words


def test_a_second_attempt_after_a_pause_is_no_recovery(open_page, service):
    service.listed[:] = [replace(mid_flight(), attempt=2)]
    assert "Recovered" not in text_of(open_page("run", run="r-live"))


def test_an_interrupted_run_is_resumed_from_its_banner_which_says_what_that_does(open_page, service):
    app = open_page("run", run="r-lost")
    assert "continues each sub-model from its last checkpoint" in text_of(app)
    assert [button.label for button in app.button].count("Resume") == 1
    app.button(key="resume-r-lost-").click().run()
    assert service.done == [("resume", "r-lost", None)]


@pytest.mark.parametrize(("state", "when"), [(State.RUNNING, "at the next step"), (State.PAUSED, "when it trains")])
def test_what_was_asked_for_is_shown_until_it_takes_effect(state, when, open_page, service):
    waiting = (CommandView(submodel="lenet", text="priority 3", issued_at_s=START_S),)
    service.listed[0] = replace(mid_flight(), state=state, waiting_commands=waiting)
    assert f"priority 3 for lenet: requested 2023-11-14 22:13, takes effect {when}" in text_of(
        open_page("run", run="r-live")
    )


def quarantine(open_page, service):
    service.listed[:] = [quarantined()]
    return open_page("run", run="r-quarantine")


def test_a_sub_model_in_quarantine_shows_cause_remedy_and_what_a_retry_does(open_page, service):
    words = text_of(quarantine(open_page, service))
    for sentence in (
        "CUDA out of memory.",
        "Retry it with a larger batch split",
        "Each batch passes through in 2 parts, which needs less memory.",
        "It continues from its checkpoint at step 64.",
        "Continues with learning rate 0.0003 instead of 0.003. It starts from the beginning.",
    ):
        assert sentence in words


@pytest.mark.parametrize(
    ("key", "changes"),
    [
        ("retry-split-r-quarantine-lenet", {"batch_split": 2}),
        ("retry-rate-r-quarantine-lenet", {"learning_rate": 0.0003}),
        ("retry-plain-r-quarantine-lenet", {}),
    ],
)
def test_a_retry_is_one_click(key, changes, open_page, service):
    app = quarantine(open_page, service).button(key=key).click().run()
    assert service.done == [("retry", "r-quarantine", "lenet", changes)]
    assert key not in {button.key for button in app.button}, "it waits again, so there is nothing to retry"


def test_a_retry_can_leave_the_checkpoint_aside(open_page, service):
    app = quarantine(open_page, service)
    app.checkbox(key="fresh-r-quarantine-lenet").check().run()
    app.button(key="retry-plain-r-quarantine-lenet").click().run()
    assert service.done == [("retry", "r-quarantine", "lenet", {"from_start": True})]


def test_the_cause_decides_which_retry_is_suggested(open_page, service):
    app = quarantine(open_page, service)
    primary = {button.key for button in app.button if button.proto.type == "primary"}
    assert primary == {"retry-split-r-quarantine-lenet", "retry-rate-r-quarantine-resnet"}


def test_a_retry_is_offered_after_the_run_has_failed_but_not_after_it_was_stopped(open_page, service):
    app = open_page("run", run="r-failed")
    press(app, "Retry with learning rate /10")
    assert service.done == [("retry", "r-failed", "resnet", {"learning_rate": 0.0003})]
    service.listed[:] = [replace(failed(), state=State.STOPPED)]
    app = open_page("run", run="r-failed")
    assert "The loss became NaN." in text_of(app)
    assert not [label for label in labels(app) if label.startswith("Retry")]


def test_one_that_a_person_discarded_says_so_without_alarm(open_page, service):
    gone = replace(submodel(0, "lenet", 2, State.STOPPED), cause="A person discarded it; nothing of it was kept.")
    service.listed[0] = run("r-live", State.RUNNING, (gone, submodel(1, "resnet", 2, State.RUNNING)))
    app = open_page("run", run="r-live")
    assert "A person discarded it; nothing of it was kept." in text_of(app)
    assert "u-notice" not in html_of(app)
