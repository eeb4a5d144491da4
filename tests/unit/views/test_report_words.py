import pytest

from tests.ui.fake_arms import spread, verdict, withheld
from unifiednn_core.views.report import cards

MEMORY, MAKESPAN, TURNAROUND, CPU, GPU = cards.QUANTITIES


@pytest.mark.parametrize(
    ("quantity", "ratio", "sentence"),
    [
        (MEMORY, 0.46, "54 % less memory than concurrent"),
        (MEMORY, 1.39, "39 % more memory than concurrent"),
        (MAKESPAN, 0.6, "40 % less time than concurrent"),
        (MAKESPAN, 1.12, "12 % more time than concurrent"),
        (MAKESPAN, 1.004, "no difference from concurrent"),
        (TURNAROUND, 0.75, "25 % shorter than concurrent"),
        (CPU, 2.5, "150 % more CPU time than concurrent"),
        (GPU, 0.9, "10 % less GPU time than concurrent"),
    ],
)
def test_a_ratio_is_said_as_a_difference(quantity, ratio, sentence):
    assert cards.difference(spread(ratio), quantity, "concurrent") == sentence


def test_repeats_that_point_both_ways_say_that_nothing_is_clear():
    assert cards.difference(spread(0.9, 1.1, 0.95), MEMORY, "sequential") == "no clear difference from sequential"


@pytest.mark.parametrize(("identical", "word"), [(True, "identical"), (False, "differ"), (None, "not compared")])
def test_weights_are_identical_or_not_or_not_compared(identical, word):
    assert word in cards.weights_text(verdict(identical_weights=identical))
    assert "not compared" in cards.weights_text(withheld("concurrent", "-"))
