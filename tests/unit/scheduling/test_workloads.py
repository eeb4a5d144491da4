"""Job sets of fitted statistics, and what must show on them."""

import statistics
from collections import Counter
from math import log

import pytest

from unifiednn_core.scheduling.outcome import outcome, shares
from unifiednn_core.scheduling.registry import policy_named
from unifiednn_core.scheduling.simulator import SimulatedJob, simulate
from unifiednn_core.scheduling.workloads import (
    DAY_S,
    HELIOS,
    HOUR_S,
    PHILLY,
    Statistics,
    alone_s,
    at_load,
    draw,
    with_deadlines,
)

BOTH = pytest.mark.parametrize("fitted", [HELIOS, PHILLY], ids=lambda one: one.name)


@BOTH
def test_drawn_durations_follow_the_statistics(fitted: Statistics) -> None:
    durations_s = [alone_s(job) for job in draw(fitted, jobs=4000, load=1, seed=1) if alone_s(job) > 60]
    whole = [alone_s(job) for job in draw(fitted, jobs=4000, load=1, seed=1)]
    assert statistics.median(whole) == pytest.approx(fitted.median_s, rel=0.1)
    above = statistics.NormalDist(log(fitted.median_s), fitted.sigma)
    assert len(durations_s) / 4000 == pytest.approx(1 - above.cdf(log(60)), abs=0.03)
    assert max(whole) <= fitted.longest_s


@BOTH
def test_drawn_arrivals_follow_the_hours_of_the_day_and_the_load(fitted: Statistics) -> None:
    jobs = draw(fitted, jobs=4000, load=0.5, seed=2)
    first = [job.arrival_s for job in jobs]
    assert first == sorted(first)
    assert sum(map(alone_s, jobs)) / first[-1] == pytest.approx(0.5, rel=0.02)
    by_hour = Counter(int(at_s % DAY_S // HOUR_S) for at_s in first)
    night, day = sum(by_hour[hour] for hour in range(4, 8)), sum(by_hour[hour] for hour in range(14, 18))
    assert night / day == pytest.approx(sum(fitted.by_hour[4:8]) / sum(fitted.by_hour[14:18]), rel=0.3)


def test_few_owners_submit_most_jobs() -> None:
    owners = Counter(job.owner for job in draw(HELIOS, jobs=2000, load=1, seed=3))
    assert len(owners) == HELIOS.owners
    assert owners.most_common(1)[0][0] == "owner01"
    assert sum(count for _, count in owners.most_common(5)) > 1200


def test_equal_seeds_draw_equal_jobs() -> None:
    assert draw(HELIOS, jobs=50, load=1, seed=4) == draw(HELIOS, jobs=50, load=1, seed=4)
    assert draw(HELIOS, jobs=50, load=1, seed=4) != draw(HELIOS, jobs=50, load=1, seed=5)


def test_arrivals_are_stretched_to_a_load() -> None:
    jobs = [SimulatedJob(name=str(n), arrival_s=100.0 + n, steps_per_epoch=10) for n in range(5)]
    stretched = at_load(jobs, 0.5)
    assert [job.arrival_s for job in stretched] == [0, 25, 50, 75, 100]
    assert [job.arrival_s for job in at_load(jobs[:1], 0.5)] == [0]


@BOTH
@pytest.mark.parametrize("seed", range(3))
def test_shortest_remaining_time_needs_at_most_0_6_of_the_mean_turnaround(fitted: Statistics, seed: int) -> None:
    jobs = draw(fitted, jobs=100, load=0.9, seed=seed)
    found = {name: outcome(jobs, simulate(jobs, policy_named(name, {}))) for name in ("fcfs", "srtf")}
    assert found["srtf"].mean_turnaround_s <= 0.6 * found["fcfs"].mean_turnaround_s
    assert found["srtf"].makespan_s == pytest.approx(found["fcfs"].makespan_s)


@BOTH
def test_fair_shares_are_off_by_at_most_5_percent(fitted: Statistics) -> None:
    jobs = draw(fitted, jobs=80, load=2, seed=0)
    found = {
        name: outcome(jobs, simulate(jobs, policy_named(name, parameters)))
        for name, parameters in (("fcfs", {}), ("fair", {"turn_s": 120}))
    }
    assert found["fair"].share_error <= 0.05 < found["fcfs"].share_error
    assert found["fair"].jain > found["fcfs"].jain


def test_each_owner_who_stays_in_line_gets_the_share_of_the_tickets_within_5_percent() -> None:
    tickets = {"ann": 1.0, "bob": 2.0, "eve": 4.0}
    jobs = [
        SimulatedJob(
            name=f"{owner}{place}", owner=owner, tickets=share, steps_per_epoch=2000, seconds_per_step=0.1 + place
        )
        for owner, share in tickets.items()
        for place in range(3)
    ]
    had_s, due_s = shares(jobs, simulate(jobs, policy_named("fair", {})), until_s=1500)
    assert sum(had_s.values()) == pytest.approx(1500)
    for owner, share in tickets.items():
        assert due_s[owner] == pytest.approx(1500 * share / 7)
        assert had_s[owner] == pytest.approx(due_s[owner], rel=0.05)


def test_figures_of_an_outcome_by_hand() -> None:
    jobs = with_deadlines(
        [
            SimulatedJob(name="long", owner="ann", steps_per_epoch=8),
            SimulatedJob(name="short", owner="bob", steps_per_epoch=2),
        ],
        slack=2,
    )
    found = outcome(jobs, simulate(jobs, policy_named("fcfs", {})))
    assert (found.mean_turnaround_s, found.median_turnaround_s, found.p95_turnaround_s) == (9, 9, 10)
    assert (found.mean_slowdown, found.p95_slowdown, found.makespan_s, found.deadlines_met) == (3, 5, 10, 0.5)
    # For 8 s both are in line and each is due 4, then bob alone is due 2.
    assert found.jain == pytest.approx((8 / 4 + 2 / 6) ** 2 / (2 * ((8 / 4) ** 2 + (2 / 6) ** 2)))
    assert (found.share_error, found.turns) == (0.4, 2)
