"""Forecasts of job sets under policies: properties, fairness, memory over time, and their pictures."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.preflight.estimate_kit import part
from unifiednn_core.preflight.memory_over_time import MOST_POINTS, MemoryModel, memory_over_time
from unifiednn_core.scheduling.fcfs import FirstComeFirstServed
from unifiednn_core.scheduling.registry import POLICIES
from unifiednn_core.scheduling.round_robin import RoundRobin
from unifiednn_core.scheduling.simulator import SimulatedJob, simulate
from unifiednn_core.views.forecast import JobSet, Overheads, best, fairness, forecast, forecasts, kept

NOTHING = Overheads(0.0, 0.0)


def job_set(*seconds: float, basis: str = "measured", **more: object) -> JobSet:
    jobs = [
        SimulatedJob(name=f"net{at}", epochs=4, steps_per_epoch=5, seconds_per_step=one / 20, parameters=at + 1)
        for at, one in enumerate(seconds)
    ]
    return JobSet(**{"jobs": tuple(jobs), "basis": basis, "overheads": NOTHING, **more})


@settings(deadline=None, max_examples=30)
@given(st.floats(0.5, 100), st.sampled_from(POLICIES), st.integers(1, 2))
def test_one_job_takes_its_own_time_under_every_policy(seconds, policy, lanes):
    made = forecast(job_set(seconds, lanes=lanes), policy())
    assert made.finish_s == {"net0": pytest.approx(seconds)}
    assert made.makespan_s == made.mean_turnaround_s == pytest.approx(seconds)
    assert made.fairness == pytest.approx(1.0)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.floats(0.5, 50), min_size=2, max_size=4), st.sampled_from(POLICIES))
def test_without_lanes_the_makespan_is_the_sum_of_service(seconds, policy):
    made = forecast(job_set(*seconds), policy())
    assert made.makespan_s == pytest.approx(sum(seconds))
    assert sum(turn.end_s - turn.start_s for turn in made.turns) == pytest.approx(sum(seconds))
    assert 1 / len(seconds) - 1e-9 <= made.fairness <= 1 + 1e-9


def test_a_start_and_an_export_count_once_each():
    made = forecast(job_set(10.0, 20.0, overheads=Overheads(2.0, 0.5)), FirstComeFirstServed())
    assert made.finish_s == {"net0": pytest.approx(12.5), "net1": pytest.approx(32.5)}
    relative = forecast(job_set(10.0, basis="relative", overheads=Overheads(2.0, 0.5)), FirstComeFirstServed())
    assert relative.makespan_s == pytest.approx(10.0) and kept(relative, ()) is None


def test_the_best_of_all_policies_is_marked_and_a_broken_one_left_out(caplog):
    class Broken(RoundRobin):
        name = "broken"

        def decide(self, view):
            raise ZeroDivisionError

    made = forecasts(job_set(10.0, 1.0), [RoundRobin(), FirstComeFirstServed(), Broken()])
    assert [one.policy for one in made] == ["round_robin", "fcfs"] and "broken" in caplog.text
    assert best(made)["mean_turnaround_s"] == {"fcfs"} and len(best(made)["makespan_s"]) == 2


def test_fairness_is_jains_index():
    assert fairness({"a": 10.0, "b": 20.0}, {"a": 20.0, "b": 40.0}) == pytest.approx(1.0)
    assert fairness({"a": 10.0, "b": 10.0}, {"a": 10.0, "b": 1e9}) == pytest.approx(0.5)


def test_memory_follows_who_has_started_and_who_is_at_work():
    parts = (part("net0"), part("net1"))
    model = MemoryModel(parts=parts, device_type="cpu", context_bytes=1000)
    turns = simulate(job_set(10.0, 20.0).jobs, FirstComeFirstServed())
    points = memory_over_time(turns, model)
    assert [at_s for at_s, _ in points] == sorted(at_s for at_s, _ in points) and points[-1][1] == 1000
    assert all(size >= 1000 for _, size in points) and points[0][0] == 0.0
    many = simulate([replace(job, epochs=400) for job in job_set(10.0, 20.0).jobs], RoundRobin())
    assert len(memory_over_time(many, model)) <= MOST_POINTS
