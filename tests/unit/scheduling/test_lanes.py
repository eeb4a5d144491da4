"""Lanes of the simulator, speeds from turns, and coarse job sets: properties."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unifiednn_core.scheduling.company import Fall, Member, MemoryRoom, Rates, Took
from unifiednn_core.scheduling.fcfs import FirstComeFirstServed
from unifiednn_core.scheduling.registry import POLICIES
from unifiednn_core.scheduling.rehearsal import (
    LEAST_STEPS,
    SLOWDOWN,
    SPREAD,
    Pace,
    Stretch,
    coarse,
    joining,
    left_s,
    mostly_beside,
    pace_of,
    paced,
)
from unifiednn_core.scheduling.round_robin import RoundRobin
from unifiednn_core.scheduling.simulator import SimulatedJob, SimulatedTurn, simulate

JOBS = st.lists(
    st.builds(
        SimulatedJob,
        name=st.just(""),
        epochs=st.integers(1, 6),
        steps_per_epoch=st.integers(1, 5),
        seconds_per_step=st.integers(1, 16).map(lambda eighths: eighths / 8),
        priority=st.integers(0, 2),
        parameters=st.integers(1, 9),
        slowdown=st.sampled_from([1.0, 1.2]),
    ),
    min_size=1,
    max_size=4,
).map(lambda jobs: [paced_name(job, f"net{place}") for place, job in enumerate(jobs)])


def paced_name(job: SimulatedJob, name: str) -> SimulatedJob:
    return replace(job, name=name)


def ends_of(turns: tuple[SimulatedTurn, ...]) -> dict[str, float]:
    return {turn.submodel: turn.end_s for turn in sorted(turns, key=lambda turn: turn.end_s)}


@settings(deadline=None, max_examples=40)
@given(JOBS, st.sampled_from(POLICIES), st.integers(1, 3))
def test_every_policy_trains_all_steps_in_at_most_so_many_lanes(jobs, policy, lanes):
    turns = simulate(jobs, policy(), lanes=lanes)
    for job in jobs:
        assert sum(turn.steps for turn in turns if turn.submodel == job.name) == job.epochs * job.steps_per_epoch
    for moment in {turn.start_s for turn in turns}:
        at_work = [turn for turn in turns if turn.start_s <= moment < turn.end_s]
        assert len(at_work) <= lanes and len({turn.submodel for turn in at_work}) == len(at_work)
        assert sum(turn.lane == 1 for turn in at_work) <= 1
    alone_s = sum(left_s(jobs).values())
    makespan_s = max(turn.end_s for turn in turns)
    if lanes == 1:
        assert makespan_s == pytest.approx(alone_s), "the device never rests"
    else:
        assert makespan_s <= alone_s * (1 + 1e-9), "company pays, or there is none"
        assert makespan_s >= max(left_s(jobs).values()) * (1 - 1e-9)


def test_two_equal_ones_in_two_lanes_end_as_late_as_one_alone_slowed_down():
    jobs = [SimulatedJob(name=name, epochs=4, steps_per_epoch=10, slowdown=1.25) for name in "ab"]
    turns = simulate(jobs, RoundRobin(), lanes=2)
    assert ends_of(turns) == {"a": 50.0, "b": 50.0}
    assert {turn.lane for turn in turns} == {1, 2}


def test_who_is_left_alone_is_fast_again():
    short, long = (
        SimulatedJob(name=name, steps_per_epoch=steps, slowdown=1.5) for name, steps in (("a", 4), ("b", 10))
    )
    # for 6 s both take 1.5 s a step; then six steps of one are left
    assert ends_of(simulate([short, long], RoundRobin(), lanes=2)) == {"a": 6.0, "b": 12.0}


@pytest.mark.parametrize(("slowdown", "beside"), [(1.9, False), (1.2, True)])
def test_company_that_does_not_pay_is_not_kept(slowdown, beside):
    jobs = [SimulatedJob(name=name, steps_per_epoch=10, slowdown=slowdown) for name in "ab"]
    assert (2 in {turn.lane for turn in simulate(jobs, RoundRobin(), lanes=2)}) is beside


@given(st.floats(1.3, 1.9), st.booleans())
def test_company_that_waits_for_a_core_is_simulated_as_the_engine_judges_it(slowdown, by_cpu):
    """The engine asks who had no core; such a wait lengthens the steps of the policy's choice and parts nobody."""
    rates, both = Rates(cpu_tells=by_cpu, own_cores=by_cpu), frozenset("ab")
    for name in "ab":
        rates.add(name, frozenset(name), Took(seconds=2.0, cpu_s=2.0, steps=20))
        rates.add(name, both, Took(seconds=2.0 * slowdown, cpu_s=2.0, waited_s=2.0 * (slowdown - 1), steps=20))
    first, second = (
        Member(name=name, priority=at, working_bytes=1, shares_randomness=False) for at, name in enumerate("ab")
    )
    jobs = [SimulatedJob(name=name, priority=at, steps_per_epoch=10, slowdown=slowdown) for at, name in enumerate("ab")]
    turns = simulate(jobs, FirstComeFirstServed(), lanes=2, may_join=joining(MemoryRoom(), by_cpu=by_cpu))
    beside = 2 in {turn.lane for turn in turns}
    assert beside is by_cpu is (rates.objection(both, first, second) is None)


def test_memory_keeps_company_away():
    jobs = [SimulatedJob(name=f"run/{name}", steps_per_epoch=10) for name in "ab"]
    for limit_bytes, beside in ((10, False), (100, True)):
        room = MemoryRoom(working_bytes={"a": 100, "b": 90}, company_bytes=limit_bytes)
        turns = simulate(jobs, RoundRobin(), lanes=2, may_join=joining(room, "run/"))
        assert (2 in {turn.lane for turn in turns}) is beside


@pytest.mark.parametrize(("share", "on_host", "beside"), [(0.6, True, True), (0.95, True, False), (0.6, False, False)])
def test_steps_that_climb_in_turn_may_be_company_as_in_the_engine(share, on_host, beside):
    jobs = [SimulatedJob(name=name, steps_per_epoch=10) for name in "ab"]
    falls = dict.fromkeys("ab", (Fall("w", 20, share),))
    room = MemoryRoom(working_bytes={"a": 100, "b": 90}, falls=falls, company_bytes=25)
    turns = simulate(jobs, RoundRobin(), lanes=2, may_join=joining(room, on_host=on_host))
    assert (2 in {turn.lane for turn in turns}) is beside


@pytest.mark.parametrize(("held_before", "beside"), [(0, False), (1, True)])
def test_a_first_step_needs_room_for_the_optimizer_too(held_before, beside):
    jobs = [
        SimulatedJob(name="a", steps_per_epoch=10),
        SimulatedJob(name="b", steps_per_epoch=10, steps_done=held_before),
    ]
    room = MemoryRoom(
        working_bytes={"a": 100, "b": 90},
        weights_bytes={"a": 10, "b": 10},
        optimizer_bytes={"a": 20, "b": 20},
        company_bytes=95,
        tensors_bytes=1000,
    )
    turns = simulate(jobs, RoundRobin(), lanes=2, may_join=joining(room))
    assert (turns[1].lane == 2) is beside


@settings(deadline=None, max_examples=60)
@given(JOBS, st.integers(1, 10), st.integers(4, 40))
def test_a_coarse_job_has_as_much_left(jobs, most_epochs, most_steps):
    made = coarse(jobs, most_epochs=most_epochs, most_steps=most_steps)
    for name, seconds in left_s(jobs).items():
        assert left_s(made)[name] == pytest.approx(seconds)
    assert [(one.name, one.priority, one.parameters) for one in made] == [
        (j.name, j.priority, j.parameters) for j in jobs
    ]
    assert sum(one.epochs for one in made) <= max(most_epochs, 0) + len(jobs)


def test_a_long_training_is_coarse_and_ends_where_the_fine_one_does():
    jobs = [
        SimulatedJob(name=name, epochs=epochs, steps_per_epoch=20, seconds_per_step=0.01, slowdown=1.1)
        for name, epochs in (("a", 300), ("b", 500), ("c", 900))
    ]
    fine, rough = (ends_of(simulate(one, RoundRobin(), lanes=2)) for one in (jobs, coarse(jobs, most_epochs=100)))
    assert all(rough[name] == pytest.approx(fine[name], rel=0.05) for name in fine)


def turns_of(name: str, step_s: float, count: int, start_s: float = 0.0, steps: int = 10) -> list[Stretch]:
    took_s = step_s * steps
    return [Stretch(name, start_s + at * took_s, start_s + (at + 1) * took_s, steps) for at in range(count)]


def test_a_speed_is_not_known_before_it_is_measured():
    assert pace_of("a", (), service_s=1.0, steps=LEAST_STEPS - 1) is None
    assert pace_of("a", (), service_s=30.0, steps=5) == Pace(6.0), "long steps are measured soon"
    assert pace_of("a", (), service_s=4.0, steps=40) == Pace(0.1, SLOWDOWN, SPREAD)


def test_a_speed_alone_and_in_company_is_told_apart():
    alone, beside = turns_of("a", 0.1, 3), turns_of("a", 0.15, 3, start_s=10.0)
    turns = [*alone, *beside, Stretch("b", 10.0, 20.0, 50)]
    pace = pace_of("a", turns, service_s=7.5, steps=60)
    assert pace is not None and (pace.step_s, pace.slowdown) == (pytest.approx(0.1), pytest.approx(1.5))
    only = pace_of("a", [*beside, Stretch("b", 10.0, 20.0, 50)], service_s=4.5, steps=30, alone_s=0.12)
    assert only is not None and (only.step_s, only.slowdown) == (pytest.approx(0.12), pytest.approx(1.25))


@given(st.floats(0.0, 0.9))
def test_the_range_grows_with_the_spread_of_the_steps(waver):
    turns = [one for at in range(8) for one in turns_of("a", 0.1 * (1 + waver * (-1) ** at), 1, start_s=10.0 * at)]
    pace = pace_of("a", turns, service_s=8.0, steps=80)
    assert pace is not None and 0 < pace.spread <= 0.5
    assert pace.spread == pytest.approx(min(0.5, max(0.03, 2 * waver)), rel=0.01)
    job = SimulatedJob(name="a")
    low, high = (paced(job, pace, scale).seconds_per_step for scale in (-1.0, 1.0))
    assert low < pace.step_s < high and math.isclose((low + high) / 2, pace.step_s)


def test_most_steps_decide_whether_it_was_beside_others():
    other, alone = Stretch("b", 0.0, 10.0, 5), Stretch("a", 10.0, 20.0, 10)
    assert not mostly_beside("a", [other, Stretch("a", 0.0, 10.0, 9), alone])
    assert mostly_beside("a", [other, Stretch("a", 0.0, 10.0, 11), alone])
