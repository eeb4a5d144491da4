import re

from hypothesis import given
from hypothesis import strategies as st

from unifiednn_core.spec.lifecycle import State, actions
from unifiednn_core.views import markup, wording


def test_every_action_of_a_person_on_a_run_has_a_verb():
    possible = set().union(*map(actions, State))
    assert set(wording.VERBS) == possible


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
