import re
from dataclasses import replace

import pytest

from tests.ui.fake_arms import arm, comparison, spread, verdict, withheld
from tests.ui.reading import tags_in, words_in
from unifiednn_core.base.units import MIB
from unifiednn_core.views.report import cards, tables

EVIL = "<img src=x onerror=alert(1)>"


def shown(*verdicts, **changes):
    return cards.cards(comparison(verdicts={v.mode: v for v in verdicts}, **changes))


def test_a_card_says_each_ratio_with_its_sign_words_figures_and_spread():
    words = words_in(cards.cards(comparison()))
    for sentence in (
        "\N{MINUS SIGN}53 % 53 % less memory than concurrent 439 MiB against 898 MiB",
        "ratio 0.47, 0.46 to 0.48 in 5 repeats",
        "+39 % 39 % more memory than sequential",
        "±0 % no difference from sequential",
        "no clear difference from sequential",
        "CPU seconds straddle 1.",
        "Weights: identical, every bit of every sub-model.",
    ):
        assert sentence in words


def test_gains_and_losses_look_alike():
    gain, loss = (re.sub(r"[\d.]+", "#", cards.scale(spread(ratio), "x")) for ratio in (0.5, 1.5))
    assert gain == loss


@pytest.mark.parametrize(
    ("ratio", "left", "width"), [(0.5, 25, 25), (1.0, 50, 0), (1.5, 50, 25), (2.0, 50, 50), (9.0, 50, 50)]
)
def test_the_bar_of_a_scale_goes_from_equal_to_the_ratio(ratio, left, width):
    assert f'<i style="left:{left:.2f}%;width:{width:.2f}%">' in cards.scale(spread(ratio), "x")


def test_a_verdict_that_is_withheld_says_why_and_gives_no_ratio():
    card = shown(withheld("concurrent", "It ran out of memory."))
    assert "No verdict It ran out of memory." in words_in(card)
    assert "u-scale" not in card and "%" not in words_in(card)


def test_weights_that_differ_are_told_beside_a_withheld_verdict():
    card = shown(replace(withheld("concurrent", "The weights differ."), identical_weights=False))
    assert "Weights: different." in words_in(card)


def test_what_killed_a_baseline_is_told():
    died = arm("concurrent")
    died = replace(died, submodels=(replace(died.submodels[0], cause="Killed by the system: no memory."),))
    card = shown(withheld("concurrent", "It did not end."), baselines={"concurrent": died})
    assert "lenet : Killed by the system: no memory." in words_in(card)


def test_others_on_the_card_are_told():
    card = shown(verdict(notes=("Other processes held 3 GiB of cuda:0.",)))
    assert "Other processes held 3 GiB of cuda:0." in words_in(card)


def test_a_figure_that_could_not_be_had_makes_no_line():
    card = shown(verdict(memory_ratio=None))
    assert "Memory" not in words_in(card) and "Makespan" in words_in(card)


def test_the_table_of_arms_shows_medians_with_their_range_and_no_column_that_is_empty():
    words = words_in(tables.arms(comparison()))
    assert "439 MiB 430 MiB to 447 MiB" in words and "GPU" not in words and "loader" not in words
    busy = replace(arm("hybrid"), gpu_s=spread(12.0))
    assert "GPU seconds" in words_in(tables.arms(comparison(hybrid=busy))) and "Energy" not in words
    warm = words_in(tables.arms(comparison(hybrid=replace(busy, energy_j=spread(7200.0)))))
    assert "Energy" in warm and "2.0 Wh" in warm
    loading = replace(arm("concurrent"), loader_s=spread(2.5), loader_cpu_s=spread(1.5))
    words = words_in(tables.arms(comparison(baselines={"concurrent": loading})))
    assert "Data loader Data loader, CPU" in words and "2.5 s 1.5 s" in words


def test_wait_service_turnaround_and_cpu_seconds_are_four_figures_of_each_sub_model_and_arm():
    words = words_in(tables.submodels(comparison()))
    assert "Wait Service Turnaround CPU seconds" in words
    assert words.count("Hybrid") == words.count("Concurrent") == words.count("Sequential") == 3
    assert "lenet Hybrid 3.0 s 11.0 s 14.0 s 12.0 s 9" in words


def test_repeats_that_disagree_are_told_and_none_is_hidden():
    odd = arm("concurrent", 2, problem="Its repeats disagree: the weights of lenet differ.")
    first = replace(odd.submodels[0], state_sha256=("a" * 64, "b" * 64))
    known = comparison(baselines={"concurrent": replace(odd, submodels=(first, *odd.submodels[1:]))})
    assert "Its repeats disagree: the weights of lenet differ." in words_in(tables.arms(known))
    words = words_in(tables.weights(known))
    assert "a" * 64 in words and "b" * 64 in words and "differs" in words


def test_the_environment_is_told_in_pairs():
    assert tables.flat({"a": {"b_c": 1, "d": None}, "e": ["x", "y"]}) == [
        ("a, b c", "1"),
        ("a, d", "not available"),
        ("e", "x, y"),
    ]
    assert "not recorded" in tables.environment(comparison(environment={}))


def test_nothing_from_outside_becomes_markup():
    bad = arm("hybrid", problem=EVIL)
    bad = replace(bad, memory_source=EVIL, submodels=tuple(replace(s, name=EVIL, cause=EVIL) for s in bad.submodels))
    known = comparison(
        hybrid=bad,
        baselines={"concurrent": replace(bad, mode="concurrent")},
        verdicts={"concurrent": withheld("concurrent", EVIL), "sequential": verdict("sequential", notes=(EVIL,))},
        environment={EVIL: EVIL},
    )
    for part in (cards.cards, tables.arms, tables.submodels, tables.weights, tables.environment):
        assert "img" not in tags_in(part(known)) and "&lt;img" in part(known)


def test_a_memory_figure_is_in_mib_and_a_time_in_seconds():
    assert cards.figure_text(300.0 * MIB, "memory_bytes") == "300 MiB"
    assert cards.figure_text(61.0, "cpu_s") == "1 min 01 s"
    assert cards.figure_text(None, "cpu_s") == "not available"
