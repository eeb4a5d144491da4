"""Who may step at once, and whether that pays."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unifiednn_core.scheduling.company import (
    LEAST_GAIN,
    MOST_DELAY,
    REST_S,
    TRIAL_STEPS,
    Member,
    Rates,
    Took,
    obstacle,
    working_limit,
)

SIZES = st.integers(0, 10**9)
BOTH, A, B = frozenset("ab"), frozenset("a"), frozenset("b")


def member(name: str, size_bytes: int | None = 1, *, draws: bool = False, priority: int = 0) -> Member:
    return Member(name=name, priority=priority, working_bytes=size_bytes, shares_randomness=draws)


def took(seconds_per_step: float, *, cpu_s: float | None = None, waited_s: float = 0.0, steps: int = 50) -> Took:
    cpu_s = seconds_per_step - waited_s if cpu_s is None else cpu_s
    return Took(steps * seconds_per_step, steps * cpu_s, steps * waited_s, steps)


@given(at_work=st.lists(SIZES, max_size=4), size=SIZES, margin=st.none() | SIZES)
def test_no_more_memory_is_at_work_than_the_largest_and_a_margin(
    at_work: Sequence[int], size: int, margin: int | None
) -> None:
    limit = working_limit([*at_work, size], margin)
    found = obstacle(member("new", size), [member(str(place), one) for place, one in enumerate(at_work)], limit)
    assert (found is None) == (size + sum(at_work) <= limit)
    assert limit >= max([*at_work, size])


@given(draws=st.lists(st.booleans(), max_size=4), new=st.booleans())
def test_one_at_a_time_draws_from_the_default_generators(draws: Sequence[bool], new: bool) -> None:
    at_work = [member(str(place), draws=one) for place, one in enumerate(draws)]
    assert (obstacle(member("new", draws=new), at_work, 100) is None) == (not new or True not in draws)


def test_of_whom_the_memory_is_unknown_trains_alone() -> None:
    assert "not known" in (obstacle(member("a", None), [member("b")], 100) or "")
    assert "not known" in (obstacle(member("a"), [member("b", None)], 100) or "")


@given(slower=st.floats(1.0, 4.0), known=st.booleans())
def test_company_pays_if_together_they_make_more_progress(slower: float, known: bool) -> None:
    """Whether the speed alone was measured, or the processor's time stands in for it."""
    rates = Rates()
    for name in "ab":
        if known:
            rates.add(name, frozenset(name), took(0.1))
        rates.add(name, BOTH, took(0.1 * slower, cpu_s=0.1))
    gain = rates.gain(BOTH)
    assert gain == pytest.approx(2 / slower)
    assert (rates.objection(BOTH, member("a"), member("b")) is None) == (gain >= LEAST_GAIN)


@given(waited=st.floats(0.0, 5.0))
def test_time_that_other_programs_took_speaks_against_nobody(waited: float) -> None:
    rates = Rates()
    for name in "ab":
        rates.add(name, BOTH, took(0.1 + waited, cpu_s=0.1, waited_s=waited))
    assert rates.gain(BOTH) == pytest.approx(2)


def test_lanes_that_wait_for_each_other_make_no_progress() -> None:
    """Two lanes on one core: each waits half of the time, and nobody else computes."""
    rates = Rates(own_cores=False)
    for name in "ab":
        rates.add(name, BOTH, took(0.2, cpu_s=0.1, waited_s=0.1))
    assert rates.gain(BOTH) == pytest.approx(1)
    assert "part" in (rates.objection(BOTH, member("a"), member("b")) or "")


@given(slower=st.floats(1.01, 1.7))
def test_a_higher_priority_is_not_delayed_by_more_than_the_limit(slower: float) -> None:
    rates = Rates()
    rates.add("a", BOTH, took(0.1 * slower, cpu_s=0.1))
    rates.add("b", BOTH, took(0.1, cpu_s=0.1))
    found = rates.objection(BOTH, member("a", priority=1), member("b", priority=2))
    assert (found is None) == (slower <= MOST_DELAY)
    assert rates.objection(BOTH, member("a", priority=1), member("b", priority=1)) is None


def test_nothing_is_judged_before_the_trial() -> None:
    rates = Rates()
    rates.add("a", BOTH, took(0.001, steps=TRIAL_STEPS - 1))
    rates.add("b", BOTH, took(0.001, steps=TRIAL_STEPS))
    assert rates.gain(BOTH) is None
    rates.add("a", BOTH, took(0.001, steps=1))
    assert rates.gain(BOTH) == pytest.approx(2)


def test_where_the_processor_does_not_compute_only_a_measurement_alone_tells() -> None:
    rates = Rates(cpu_tells=False)
    for name in "ab":
        rates.add(name, BOTH, took(0.1, cpu_s=0.01))
    assert (rates.gain(BOTH), rates.seconds_per_step("a")) == (None, None)
    for name in "ab":
        rates.add(name, frozenset(name), took(0.08, cpu_s=0.01))
    assert rates.gain(BOTH) == pytest.approx(1.6)
    assert rates.seconds_per_step("a") == pytest.approx(0.08), "a policy sees the speed alone"


def test_who_was_parted_rests_for_a_while_and_is_then_measured_anew() -> None:
    rates = Rates()
    for name in "ab":
        rates.add(name, BOTH, took(0.2, cpu_s=0.1))
    rates.rest(BOTH, 10.0)
    assert rates.rests(BOTH, 10.0 + REST_S - 1)
    assert rates.rests(BOTH | {"c"}, 11.0), "a larger group contains those who do not fit together"
    assert not rates.rests(A | {"c"}, 11.0)
    assert not rates.rests(BOTH, 10.0 + REST_S)
    assert rates.gain(BOTH) is None
    rates.forget("a")
    assert not rates.any_rests
