"""Simulated traces against an oracle written straight from the textbook definitions, one step at a time.

All durations are multiples of 1/8 s, so that sums of them are exact and equality means bits.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import count, groupby, pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from unifiednn_core.scheduling.base import Policy
from unifiednn_core.scheduling.fcfs import FirstComeFirstServed
from unifiednn_core.scheduling.priority import Priority
from unifiednn_core.scheduling.round_robin import RoundRobin
from unifiednn_core.scheduling.simulator import SimulatedJob, SimulatedTurn, simulate
from unifiednn_core.scheduling.sjf import ShortestJobFirst


def for_all(*values: st.SearchStrategy[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """`given` without its limit on wall-clock time."""
    return lambda test: settings(deadline=None)(given(*values)(test))


eighths = st.integers(1, 24).map(lambda n: n / 8)


def job_sets(arrivals: st.SearchStrategy[float]) -> st.SearchStrategy[list[SimulatedJob]]:
    job = st.builds(
        SimulatedJob,
        name=st.sampled_from("abcdefghijkl"),
        arrival_s=arrivals,
        priority=st.integers(-1, 2),
        parameters=st.integers(1, 4),
        epochs=st.integers(1, 4),
        steps_per_epoch=st.integers(1, 5),
        seconds_per_step=eighths,
    )
    return st.lists(job, min_size=1, max_size=6, unique_by=lambda job: job.name)


together = job_sets(st.just(0.0))
spread = job_sets(st.one_of(st.just(0.0), st.integers(0, 160).map(lambda n: n / 8)))

round_robins = st.one_of(
    st.builds(RoundRobin, unit=st.sampled_from(["epochs", "steps"]), amount=st.integers(1, 4)),
    st.builds(RoundRobin, unit=st.just("seconds"), amount=eighths),
)
policies = st.one_of(
    st.just(FirstComeFirstServed()),
    st.just(Priority()),
    st.builds(ShortestJobFirst, by=st.sampled_from(["parameters", "epochs", "time"])),
    round_robins,
)

# --- the oracle -------------------------------------------------------------------------------------------------------

Grant = tuple[str, int]


def all_steps(job: SimulatedJob) -> int:
    return job.epochs * job.steps_per_epoch


def grants(turns: tuple[SimulatedTurn, ...]) -> list[Grant]:
    return [(part.submodel, part.steps) for part in turns]


def joined(parts: Iterable[Grant]) -> list[Grant]:
    """Neighbours of the same job as one."""
    return [(name, sum(steps for _, steps in group)) for name, group in groupby(parts, key=lambda part: part[0])]


def one_after_another(jobs: Iterable[SimulatedJob]) -> Iterator[Grant]:
    for job in jobs:
        yield job.name, all_steps(job)


def in_turns(jobs: Iterable[SimulatedJob], turn_ends: Callable[[SimulatedJob, int, int], bool]) -> Iterator[Grant]:
    """Round robin of jobs that are all there; `turn_ends(job, steps in this turn, steps done)`."""
    line = deque((job, 0) for job in jobs)
    while line:
        job, done = line.popleft()
        steps = 0
        while done < all_steps(job) and not (steps and turn_ends(job, steps, done)):
            steps, done = steps + 1, done + 1
        yield job.name, steps
        if done < all_steps(job):
            line.append((job, done))


def at_epoch_end(job: SimulatedJob, steps: int, done: int) -> bool:
    return done % job.steps_per_epoch == 0


def at_turn_end(policy: RoundRobin) -> Callable[[SimulatedJob, int, int], bool]:
    if policy.unit == "epochs":  # with all jobs there from the start, turns begin at epoch ends
        return lambda job, steps, done: steps == policy.amount * job.steps_per_epoch
    if policy.unit == "steps":
        return lambda job, steps, done: steps == policy.amount
    return lambda job, steps, done: steps * job.seconds_per_step >= policy.amount


def in_turns_with_arrivals(jobs: Iterable[SimulatedJob], policy: RoundRobin) -> Iterator[tuple[str, int, float]]:
    """Round robin that arrivals join at step boundaries, behind the one whose turn ends there; with starts."""
    coming = deque(sorted(jobs, key=lambda job: job.arrival_s))
    line: deque[tuple[SimulatedJob, int]] = deque()
    now_s = 0.0
    while coming or line:
        if not line:
            now_s = max(now_s, coming[0].arrival_s)
        while coming and coming[0].arrival_s <= now_s:
            line.append((coming.popleft(), 0))
        job, done = line.popleft()
        start_s, epoch_ends, ended = now_s, 0, False
        for steps in count(1):
            done, now_s = done + 1, now_s + job.seconds_per_step
            epoch_ends += done % job.steps_per_epoch == 0
            spent = {"epochs": epoch_ends, "steps": steps, "seconds": steps * job.seconds_per_step}
            ended = spent[policy.unit] >= policy.amount or done == all_steps(job)
            if ended:
                break
            while coming and coming[0].arrival_s <= now_s:
                line.append((coming.popleft(), 0))
        yield job.name, steps, start_s
        if done < all_steps(job):
            line.append((job, done))


# --- the definitions, with all jobs there from the start --------------------------------------------------------------


@for_all(together)
def test_first_come_first_served_is_the_order_given(jobs: list[SimulatedJob]) -> None:
    assert grants(simulate(jobs, FirstComeFirstServed())) == list(one_after_another(jobs))


@for_all(together)
def test_shortest_job_first_by_weights_is_the_jobs_sorted(jobs: list[SimulatedJob]) -> None:
    expected = list(one_after_another(sorted(jobs, key=lambda job: job.parameters)))
    assert grants(simulate(jobs, ShortestJobFirst())) == expected


@for_all(together)
def test_shortest_job_first_by_epochs_is_the_jobs_sorted(jobs: list[SimulatedJob]) -> None:
    expected = list(one_after_another(sorted(jobs, key=lambda job: job.epochs)))
    assert grants(simulate(jobs, ShortestJobFirst(by="epochs"))) == expected


@for_all(together)
def test_shortest_job_first_by_time_probes_all_then_sorts_by_what_is_left(jobs: list[SimulatedJob]) -> None:
    probes = [(job.name, min(3, all_steps(job))) for job in jobs]
    left = [(job, all_steps(job) - 3) for job in jobs if all_steps(job) > 3]
    left.sort(key=lambda pair: pair[1] * pair[0].seconds_per_step)
    expected = probes + [(job.name, steps) for job, steps in left]
    assert grants(simulate(jobs, ShortestJobFirst(by="time"))) == expected


@for_all(together, round_robins)
def test_round_robin_is_a_queue(jobs: list[SimulatedJob], policy: RoundRobin) -> None:
    assert grants(simulate(jobs, policy)) == list(in_turns(jobs, at_turn_end(policy)))


@for_all(together)
def test_priority_is_one_queue_for_each_value(jobs: list[SimulatedJob]) -> None:
    expected: list[Grant] = []
    for value in sorted({job.priority for job in jobs}):
        expected += in_turns([job for job in jobs if job.priority == value], at_epoch_end)
    # The last one left of a value runs to completion; the queue gives it an epoch at a time.
    assert joined(grants(simulate(jobs, Priority()))) == joined(expected)


# --- later arrivals ---------------------------------------------------------------------------------------------------


@for_all(spread)
def test_first_come_first_served_stays_in_order_of_arrival(jobs: list[SimulatedJob]) -> None:
    by_arrival = sorted(jobs, key=lambda job: job.arrival_s)
    turns = simulate(jobs, FirstComeFirstServed())
    assert joined(grants(turns)) == list(one_after_another(by_arrival))
    free_s = 0.0
    for job in by_arrival:
        start_s = max(free_s, job.arrival_s)
        free_s = start_s + all_steps(job) * job.seconds_per_step
        own = [part for part in turns if part.submodel == job.name]
        assert (own[0].start_s, own[-1].end_s) == (start_s, free_s)


@for_all(spread, round_robins)
def test_round_robin_is_a_queue_that_arrivals_join(jobs: list[SimulatedJob], policy: RoundRobin) -> None:
    actual = [(part.submodel, part.steps, part.start_s) for part in simulate(jobs, policy)]
    assert actual == list(in_turns_with_arrivals(jobs, policy))


# --- what holds under every policy ------------------------------------------------------------------------------------


@for_all(spread, policies)
def test_all_jobs_finish_and_no_step_is_lost(jobs: list[SimulatedJob], policy: Policy) -> None:
    turns = simulate(jobs, policy)
    assert {part.submodel for part in turns} == {job.name for job in jobs}
    for job in jobs:
        slices = [part for part in turns if part.submodel == job.name]
        assert sum(part.steps for part in slices) == all_steps(job)
        assert all(part.steps >= 1 and part.start_s >= job.arrival_s for part in slices)
        assert all(part.end_s - part.start_s == part.steps * job.seconds_per_step for part in slices)


@for_all(spread, policies)
def test_the_device_is_idle_only_while_the_line_is_empty(jobs: list[SimulatedJob], policy: Policy) -> None:
    turns = simulate(jobs, policy)
    end_s = {part.submodel: part.end_s for part in turns}
    assert turns[0].start_s == min(job.arrival_s for job in jobs)
    for before, after in pairwise(turns):
        assert before.end_s <= after.start_s
        if before.end_s < after.start_s:
            assert all(end_s[job.name] <= before.end_s or job.arrival_s >= after.start_s for job in jobs)


@for_all(together, policies)
def test_the_makespan_of_jobs_that_are_all_there_does_not_depend_on_the_policy(
    jobs: list[SimulatedJob], policy: Policy
) -> None:
    assert simulate(jobs, policy)[-1].end_s == sum(all_steps(job) * job.seconds_per_step for job in jobs)
