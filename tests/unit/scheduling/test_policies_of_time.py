"""Policies that know time, against oracles: all orders, the share due, the demand that no order can meet.

All durations are multiples of 1/8 s, so that sums of them are exact.
"""

from collections import Counter
from itertools import pairwise, permutations
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.unit.scheduling.policy_kit import expect, job
from unifiednn_core.scheduling.base import PROBE, TO_COMPLETION, Decision, Policy, Quantum, Shares, View
from unifiednn_core.scheduling.deadline import EarliestDeadlineFirst
from unifiednn_core.scheduling.fair import FairShares
from unifiednn_core.scheduling.fcfs import FirstComeFirstServed
from unifiednn_core.scheduling.finish_time import FinishTime, rho
from unifiednn_core.scheduling.las import LeastAttainedService
from unifiednn_core.scheduling.simulator import SimulatedJob, SimulatedTurn, simulate
from unifiednn_core.scheduling.srtf import AGAIN, ShortestRemainingTime

eighths = st.integers(1, 24).map(lambda n: n / 8)
no_limit = settings(deadline=None)


def job_sets(arrivals: st.SearchStrategy[float], max_size: int = 6, **more: Any) -> st.SearchStrategy[Any]:
    facts: dict[str, Any] = {"steps_per_epoch": st.integers(1, 12), "seconds_per_step": eighths, **more}
    one = st.builds(SimulatedJob, name=st.sampled_from("abcdefgh"), arrival_s=arrivals, **facts)
    return st.lists(one, min_size=1, max_size=max_size, unique_by=lambda job: job.name)


together, later = st.just(0.0), st.integers(0, 30).map(float)


def length_s(job: SimulatedJob) -> float:
    return job.epochs * job.steps_per_epoch * job.seconds_per_step


def ends_s(turns: tuple[SimulatedTurn, ...]) -> dict[str, float]:
    return {turn.submodel: turn.end_s for turn in turns}


def turnaround_s(jobs: list[SimulatedJob], policy: Policy) -> float:
    ends = ends_s(simulate(jobs, policy))
    return sum(ends[job.name] - job.arrival_s for job in jobs)


# --- shortest remaining time first ------------------------------------------------------------------------------------


@no_limit
@given(job_sets(together, max_size=5, measured=st.just(True)))
def test_known_times_give_the_best_mean_turnaround_of_all_orders(jobs: list[SimulatedJob]) -> None:
    lengths = [list(map(length_s, order)) for order in permutations(jobs)]
    best_s = min(sum(sum(order[: place + 1]) for place in range(len(order))) for order in lengths)
    assert turnaround_s(jobs, ShortestRemainingTime(hysteresis=0)) == best_s


@no_limit
@given(job_sets(later, measured=st.just(True), seconds_per_step=st.just(1.0)))
def test_with_arrivals_no_policy_beats_it(jobs: list[SimulatedJob]) -> None:
    best_s = turnaround_s(jobs, ShortestRemainingTime(hysteresis=0))
    for other in (
        FirstComeFirstServed(),
        FairShares(),
        FinishTime(),
        LeastAttainedService(first_queue_s=2, second_queue_s=9),
    ):
        assert best_s <= turnaround_s(jobs, other)


@no_limit
@given(job_sets(together, measured=st.just(True)), st.floats(0, 0.9))
def test_hysteresis_costs_at_most_its_share(jobs: list[SimulatedJob], hysteresis: float) -> None:
    worst_s = turnaround_s(jobs, ShortestRemainingTime(hysteresis=hysteresis))
    assert worst_s <= turnaround_s(jobs, ShortestRemainingTime(hysteresis=0)) / (1 - hysteresis)


def measured(name: str, arrival: int, left: int, **facts: Any) -> Any:
    return job(name, arrival, seconds_per_step=1.0, steps_done=100 - left, steps_total=100, **facts)


def test_srtf_tries_those_that_are_not_measured_first() -> None:
    expect(
        ShortestRemainingTime(),
        [measured("a", 0, 5), job("b", 1)],
        "b",
        PROBE,
        "b is not measured yet; 3 steps show its speed.",
    )


def test_srtf_stays_with_the_one_that_trained_last_unless_another_is_clearly_shorter() -> None:
    def choice(left: int, at_work: tuple[str, ...] = (), **facts: Any) -> str:
        last = measured("last", 1, 50, service_s=50.0, in_line_since=9)
        other = measured("other", 0, left, **facts)
        return ShortestRemainingTime().decide(View((other, last), 0.0, at_work)).job

    assert [choice(49), choice(46), choice(45), choice(44)] == ["last", "last", "last", "other"]
    assert choice(46, service_s=9.0, in_line_since=10) == "other"  # it trained later
    assert choice(49, at_work=("last",), service_s=9.0, in_line_since=10) == "last"  # and this one trains now
    assert choice(54, at_work=("other",)) == "other"


def test_srtf_compares_again_after_a_while_only_if_there_is_company() -> None:
    reason = "a has the least time left: about 5.0 s."
    expect(ShortestRemainingTime(), [measured("a", 0, 5)], "a", TO_COMPLETION, reason)
    expect(ShortestRemainingTime(), [measured("a", 0, 5), measured("b", 1, 9)], "a", AGAIN, reason)


# --- fair shares ------------------------------------------------------------------------------------------------------

TICKETS = {"ann": 1.0, "bob": 2.0, "eve": 3.5}


def busy(owner: str, name: str, seconds_per_step: float, arrival_s: float = 0.0) -> SimulatedJob:
    return SimulatedJob(
        name=name,
        owner=owner,
        tickets=TICKETS[owner],
        arrival_s=arrival_s,
        steps_per_epoch=int(400 / seconds_per_step),
        seconds_per_step=seconds_per_step,
    )


def service_s(
    turns: tuple[SimulatedTurn, ...], owners: dict[str, str], begin_s: float, end_s: float
) -> dict[str, float]:
    """Seconds of each owner between two moments."""
    found: Counter[str] = Counter()
    for turn in turns:
        found[owners[turn.submodel]] += max(0.0, min(turn.end_s, end_s) - max(turn.start_s, begin_s))
    return dict(found)


@no_limit
@given(
    st.lists(st.tuples(st.sampled_from(sorted(TICKETS)), eighths), min_size=2, max_size=6),
    st.sampled_from([0.5, 1.0, 4.0]),
    st.integers(20, 120),
)
def test_service_is_within_a_turn_of_the_tickets_at_any_moment(
    parts: list[tuple[str, float]], turn_s: float, until_s: int
) -> None:
    jobs = [busy(owner, f"job{place}", speed) for place, (owner, speed) in enumerate(parts)]
    owners = {job.name: job.owner for job in jobs}
    assume(len(set(owners.values())) > 1)
    turns = simulate(jobs, FairShares(turn_s=turn_s))
    had = service_s(turns, owners, 0.0, until_s)
    longest_s = turn_s + max(job.seconds_per_step for job in jobs)
    per_ticket = [had.get(owner, 0.0) / TICKETS[owner] for owner in set(owners.values())]
    assert max(per_ticket) - min(per_ticket) <= longest_s / min(TICKETS[owner] for owner in owners.values())


def test_one_who_comes_late_gets_a_share_from_then_on_and_no_more() -> None:
    jobs = [busy("ann", "early", 0.5), busy("bob", "late", 0.5, arrival_s=100)]
    turns = simulate(jobs, FairShares())
    had = service_s(turns, {"early": "ann", "late": "bob"}, 100, 190)
    assert abs(had["ann"] - 30) <= 1 and abs(had["bob"] - 60) <= 1


def test_many_sub_models_of_one_owner_get_no_more_than_one() -> None:
    jobs = [busy("ann", f"a{n}", 1.0) for n in range(5)] + [replace_owner(busy("ann", "b", 1.0), "bo")]
    had = service_s(simulate(jobs, FairShares()), {job.name: job.owner for job in jobs}, 0, 200)
    assert had == {"ann": 100, "bo": 100}


def replace_owner(job: SimulatedJob, owner: str) -> SimulatedJob:
    return SimulatedJob(name=job.name, owner=owner, steps_per_epoch=job.steps_per_epoch)


def test_within_an_owner_the_priority_decides() -> None:
    least = {"owner": "y", "owner_service_s": 4.0, "tickets": 2.0}
    jobs = [job("a", 0, owner="x", owner_service_s=3.0, priority=-9), job("b", 1, **least)]
    jobs.append(job("c", 2, priority=-1, **least))
    expect(FairShares(), jobs, "c", Quantum("seconds", 1), "The owner of c is least served: 2.0 s for each ticket.")


def test_shares_of_one_who_was_away_begin_level() -> None:
    shares = Shares()
    shares.of({"ann": 1.0, "bob": 1.0})
    shares.charge("ann", 5.0)
    assert dict(shares.of({"ann": 1.0})) == {"ann": 5.0, "bob": 0.0}
    shares.charge("ann", 5.0)
    assert shares.of({"ann": 1.0, "bob": 3.0})["bob"] == 30.0
    shares.of({})
    assert shares.of({"eve": 2.0})["eve"] == 20.0


# --- finish-time fairness ---------------------------------------------------------------------------------------------


@no_limit
@given(job_sets(together, measured=st.just(True)))
def test_finish_time_trains_the_highest_rho(jobs: list[SimulatedJob]) -> None:
    policy = FinishTime()
    for view, decision in watched(jobs, policy):
        chosen = next(job for job in view.jobs if job.name == decision.job)
        assert rho(chosen, len(view.jobs)) == max(rho(job, len(view.jobs)) for job in view.jobs)


def test_finish_time_says_how_late_one_would_be() -> None:
    jobs = [measured("a", 0, 100, waiting_s=20.0), measured("b", 1, 50, service_s=50.0, waiting_s=150.0)]
    reason = "b would end latest: after 1.25 times its fair share of the time."
    expect(FinishTime(turn_s=2), jobs, "b", Quantum("seconds", 2), reason)


# --- deadlines --------------------------------------------------------------------------------------------------------


def watched(jobs: list[SimulatedJob], policy: Policy) -> list[tuple[View, Decision]]:
    """Every view of a simulation, with the decision on it."""
    seen: list[tuple[View, Decision]] = []

    class Watched:
        name = policy.name
        summary = policy.summary

        def decide(self, view: View) -> Decision:
            decision = policy.decide(view)
            seen.append((view, decision))
            return decision

    simulate(jobs, Watched())
    return seen


def missed(jobs: list[SimulatedJob], ends: dict[str, float]) -> bool:
    return any(job.deadline_s is not None and ends[job.name] > job.deadline_s for job in jobs)


deadlines = st.one_of(st.none(), st.integers(1, 60).map(float))


@no_limit
@given(job_sets(together, max_size=5, deadline_s=deadlines))
def test_if_earliest_deadline_first_misses_every_order_misses(jobs: list[SimulatedJob]) -> None:
    assume(missed(jobs, ends_s(simulate(jobs, EarliestDeadlineFirst()))))
    for order in permutations(jobs):
        free_s, ends = 0.0, {}
        for one in order:
            free_s += length_s(one)
            ends[one.name] = free_s
        assert missed(jobs, ends)


@no_limit
@given(job_sets(later, deadline_s=deadlines, seconds_per_step=st.just(1.0)))
def test_if_it_misses_with_arrivals_there_is_more_to_do_than_time(jobs: list[SimulatedJob]) -> None:
    assume(missed(jobs, ends_s(simulate(jobs, EarliestDeadlineFirst()))))
    due = [job for job in jobs if job.deadline_s is not None]
    demands = [
        sum(map(length_s, (job for job in due if job.arrival_s >= begin_s and (job.deadline_s or 0) <= end_s)))
        > max(0.0, end_s - begin_s)
        for begin_s in {job.arrival_s for job in due}
        for end_s in {job.deadline_s or 0 for job in due}
    ]
    assert any(demands)


def test_one_that_is_too_late_makes_way() -> None:
    jobs = [job("late", 0, deadline_s=10.0), job("free", 1), job("due", 2, deadline_s=50.0)]
    ahead = EarliestDeadlineFirst().decide(View(tuple(jobs), 20.0))
    assert ahead == Decision("due", Quantum("seconds", 30.0), "due is due first: in 30.0 s.")
    behind = EarliestDeadlineFirst().decide(View(tuple(jobs), 60.0))
    assert behind == Decision("late", TO_COMPLETION, "late arrived first; nobody has a deadline ahead.")


# --- least attained service -------------------------------------------------------------------------------------------


@no_limit
@given(job_sets(later, steps_per_epoch=st.integers(1, 40)))
def test_a_lower_queue_is_never_kept_waiting(jobs: list[SimulatedJob]) -> None:
    policy = LeastAttainedService(first_queue_s=4, second_queue_s=20)
    for view, decision in watched(jobs, policy):
        chosen = next(job for job in view.jobs if job.name == decision.job)
        assert policy.queue(chosen) == min(map(policy.queue, view.jobs))
        equals = [job for job in view.jobs if policy.queue(job) == policy.queue(chosen)]
        assert chosen.arrival == min(job.arrival for job in equals)


@no_limit
@given(job_sets(together, steps_per_epoch=st.integers(1, 40), seconds_per_step=st.just(1.0)))
def test_turns_end_where_queues_end(jobs: list[SimulatedJob]) -> None:
    had: Counter[str] = Counter()
    turns = simulate(jobs, LeastAttainedService(first_queue_s=4, second_queue_s=20))
    for turn in turns:
        had[turn.submodel] += turn.steps
        whole = next(length_s(job) for job in jobs if job.name == turn.submodel)
        assert had[turn.submodel] in (4, 20, whole)
    assert all(before.end_s == after.start_s for before, after in pairwise(turns))


def test_las_says_which_queue_it_serves() -> None:
    policy = LeastAttainedService()
    expect(
        policy,
        [job("a", 0, service_s=60.0), job("b", 1, service_s=15.0)],
        "b",
        Quantum("seconds", 45),
        "b has had 15.0 s, less than 60 s, and arrived first of those.",
    )
    expect(
        policy,
        [job("a", 0, service_s=700.0), job("b", 1, service_s=600.0)],
        "a",
        TO_COMPLETION,
        "a has had 11 min 40 s, and arrived first; all had 600 s or more.",
    )
