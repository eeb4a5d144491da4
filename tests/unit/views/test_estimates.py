"""Estimates: their ranges, their words, and that nothing is done before it is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unifiednn_core.views import wording
from unifiednn_core.views.estimates import Estimate, earliest, latest, shown_progress

SECONDS = st.floats(0, 1e7)
ESTIMATES = st.builds(Estimate.around, SECONDS, st.floats(0, 2))


@given(st.lists(ESTIMATES, min_size=1))
def test_the_first_and_the_last_of_several_keep_their_range(several):
    for found in (earliest(several), latest(several)):
        assert found is not None and 0 <= found.low_s <= found.likely_s <= found.high_s
    assert earliest([]) is None and latest([]) is None
    assert latest(several).likely_s == max(one.likely_s for one in several)


@pytest.mark.parametrize(
    ("estimate", "text"),
    [
        (Estimate(13 * 60, 12 * 60, 15 * 60), "ends about 22:26, in 12 to 15 min"),
        (Estimate(28, 22, 34), "ends in 20 to 35 s"),
        (Estimate(2, 1, 3), "ends in a moment"),
        (Estimate(7200, 7200, 7200), "ends on 15 Nov about 00:13, in about 2 h"),
        (Estimate(40 * 60, 20, 50 * 60), "ends about 22:53, in up to 50 min"),
    ],
)
def test_an_estimate_names_the_clock_and_the_range(estimate, text):
    assert wording.estimate_text(None, estimate, 1_700_000_000.0, "UTC") == text


@given(st.integers(0, 1000), st.integers(0, 1000))
def test_nothing_is_whole_before_its_last_file(done, total):
    assert 0 <= shown_progress(min(done, total), total, ended=False) < 1
    assert shown_progress(total, total, ended=True) == (1 if total else 0)
