import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pages._ui import frame
from unifiednn_core.spec.lifecycle import State, actions
from unifiednn_core.store.events import KINDS
from unifiednn_core.views import markup, wording

STYLE = Path(frame.STYLE).read_text(encoding="utf-8")


def test_every_state_has_words_an_icon_and_a_colour():
    assert set(wording.STATES) == set(State)
    for words in wording.STATES.values():
        assert words.label and words.sentence.endswith(".")
        assert re.fullmatch(r"[a-z0-9_]+", words.icon)
        assert f"--u-{words.colour}: light-dark(" in STYLE


def test_no_two_states_share_their_label():
    assert len({words.label for words in wording.STATES.values()}) == len(State)


def test_every_action_of_a_person_on_a_run_has_a_verb():
    possible = set().union(*map(actions, State))
    assert set(wording.VERBS) == possible


@pytest.mark.parametrize("state", State)
def test_a_badge_says_its_state_in_words(state):
    assert wording.STATES[state].label in markup.state_badge(state)


@given(st.text(st.characters(codec="utf-8")))
def test_plain_text_is_words_or_one_code_span(text):
    label = wording.plain(text)
    fence = re.match("`*", label)[0]
    inside = label[len(fence) : len(label) - len(fence)]
    assert label.endswith(fence) if fence else re.fullmatch(r"[\w -]+", label)
    assert fence not in re.findall("`+", inside), "which would end it early"


@given(st.text())
def test_markup_of_any_text_makes_no_element(text):
    for html in (markup.text(text), markup.title(text), markup.notice("red", text, text, text, text)):
        inside = re.sub(r"</?(div|h1|span|b|p)\b[^<>]*>", "", html)
        assert "<" not in inside and ">" not in inside


def test_ages_are_told_in_minutes_then_hours_then_as_a_date():
    now_s = 1_700_000_000.0
    ages_s = (5, 600, 7200, 3 * 24 * 3600)
    assert [wording.ago_text(now_s - age_s, now_s, "UTC") for age_s in ages_s] == [
        "just now",
        "10 min ago",
        "2 h ago",
        "2023-11-11 22:13",
    ]
    assert wording.ago_text(None, now_s) == "-"


def test_moments_are_told_in_the_viewers_time_zone_or_in_utc():
    assert wording.moment_text(0, "Asia/Tokyo", "%H:%M:%S") == "09:00:00"
    assert wording.moment_text(0, None, "%H") == wording.moment_text(0, "No/Such_Zone", "%H") == "00"


def test_ages_of_what_changes_by_the_second_are_told_in_seconds():
    now_s = 1_700_000_000.0
    ages_s = (-2, 0, 3.4, 59.4, 60, 7200)
    assert [wording.ago_text(now_s - age_s, now_s, seconds=True) for age_s in ages_s] == [
        "0 s ago",
        "0 s ago",
        "3 s ago",
        "59 s ago",
        "1 min ago",
        "2 h ago",
    ]
    assert wording.ago_text(None, now_s, seconds=True) == "-"


@pytest.mark.parametrize(
    ("recoveries", "redone", "sentence"),
    [
        (0, 0, ""),
        (1, 0, "Recovered once."),
        (1, 1, "Recovered once; 1 lost step trained again and counted once."),
        (2, 1_037, "Recovered 2 times; 1,037 lost steps trained again and counted once."),
        (0, 5, "Continued from the last checkpoints; 5 lost steps trained again and counted once."),
    ],
)
def test_a_recovery_is_told_with_what_it_cost(recoveries, redone, sentence):
    assert wording.recovered_text(recoveries, redone, ended=False) == sentence


def test_that_no_step_was_lost_is_said_at_the_end_alone():
    assert wording.recovered_text(1, 0, ended=True) == "Recovered once; no step was lost."


def test_every_event_kind_has_a_label_of_its_own():
    kinds = {*KINDS.values(), "new_kind"}
    assert len({wording.title(kind) for kind in kinds}) == len(kinds)
    assert (wording.title("applied"), wording.title("new_kind")) == ("Took effect", "New kind")


@pytest.mark.parametrize("text", ["priority 3", "priority 3 for lenet"])
def test_what_is_awaited_names_its_sub_model_once(text):
    sentence = wording.waiting_text(text, "lenet", "3 s ago", State.RUNNING)
    assert sentence.count("lenet") == 1 and sentence.endswith("requested 3 s ago, takes effect at the next step")
