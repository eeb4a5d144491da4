from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pages._ui.banners import offers, suggested
from tests.ui.fake_views import submodel
from unifiednn_core.spec.lifecycle import State

FAILED = submodel(0, "lenet", 3, State.FAILED)


@pytest.mark.parametrize(
    ("cause", "expected"),
    [
        ("CUDA out of memory. Tried to allocate 2.00 GiB.", "split"),
        ("Out of memory at step 7.", "split"),
        ("The loss became NaN.", "rate"),
        ("The loss is not finite at step 3.", "rate"),
        ("The loss became infinite.", "rate"),
        ("A step took longer than 600 s.", "plain"),
        ("RuntimeError: nanoseconds were given where seconds are wanted.", "plain"),
        ("", "plain"),
        (None, "plain"),
    ],
)
def test_the_words_of_the_cause_suggest_a_retry(cause, expected):
    failed = replace(FAILED, cause=cause)
    assert suggested(failed) == expected
    assert offers(failed)[0].kind == expected


def test_each_retry_changes_one_thing_and_names_it_before_and_after():
    by_kind = {way.kind: way for way in offers(replace(FAILED, batch_split=4))}
    changes = {kind: (way.batch_split, way.learning_rate) for kind, way in by_kind.items()}
    assert changes == {"split": (8, None), "rate": (None, 0.0003), "plain": (None, None)}
    assert "8 parts instead of 4" in by_kind["split"].sentence
    assert "0.0003 instead of 0.003" in by_kind["rate"].sentence


@given(st.integers(1, 64), st.integers(1, 64))
def test_a_batch_is_not_split_into_more_parts_than_it_has_samples(batch_size, batch_split):
    ways = offers(replace(FAILED, batch_size=batch_size, batch_split=batch_split))
    assert any(way.kind == "split" for way in ways) == (2 * batch_split <= batch_size)
    assert all(way.batch_split <= batch_size for way in ways if way.batch_split)


def test_what_is_not_known_is_not_changed():
    unknown = replace(FAILED, learning_rate=None, batch_size=None)
    assert {way.kind for way in offers(unknown)} == {"split", "plain"}
