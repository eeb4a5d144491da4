from dataclasses import replace

from tests.ui.fake_arms import arm, comparison, verdict, withheld
from tests.ui.reading import tags_in, words_in
from unifiednn_core.views.report import cards, tables

EVIL = "<img src=x onerror=alert(1)>"


def shown(*verdicts, **changes):
    return cards.cards(comparison(verdicts={v.mode: v for v in verdicts}, **changes))


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


def test_a_figure_that_could_not_be_had_makes_no_line():
    card = shown(verdict(memory_ratio=None))
    assert "Memory" not in words_in(card) and "Makespan" in words_in(card)


def test_repeats_that_disagree_are_told_and_none_is_hidden():
    odd = arm("concurrent", 2, problem="Its repeats disagree: the weights of lenet differ.")
    first = replace(odd.submodels[0], state_sha256=("a" * 64, "b" * 64))
    known = comparison(baselines={"concurrent": replace(odd, submodels=(first, *odd.submodels[1:]))})
    assert "Its repeats disagree: the weights of lenet differ." in words_in(tables.arms(known))
    words = words_in(tables.weights(known))
    assert "a" * 64 in words and "b" * 64 in words and "differs" in words


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
