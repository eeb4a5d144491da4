"""What each policy decides, as tables: who is in line, and what comes of it."""

from typing import Any

import pytest

from unifiednn_core.base.errors import BadInput
from unifiednn_core.scheduling.base import PROBE, TO_COMPLETION, JobView, Policy, Quantum, View
from unifiednn_core.scheduling.fcfs import FirstComeFirstServed
from unifiednn_core.scheduling.priority import Priority
from unifiednn_core.scheduling.round_robin import RoundRobin
from unifiednn_core.scheduling.sjf import ShortestJobFirst


def job(name: str, arrival: int, **facts: Any) -> JobView:
    plain: dict[str, Any] = {
        "in_line_since": arrival,
        "priority": 0,
        "parameters": 100,
        "epochs": 2,
        "epochs_done": 0,
        "steps_total": 20,
        "steps_done": 0,
        "seconds_per_step": None,
        "waiting_s": 0.0,
    }
    return JobView(name=name, arrival=arrival, **(plain | facts))


def expect(policy: Policy, jobs: list[JobView], chosen: str, quantum: Quantum, reason: str) -> None:
    decision = policy.decide(View(tuple(jobs), now_s=0.0))
    assert (decision.job, decision.quantum, decision.reason) == (chosen, quantum, reason)


@pytest.mark.parametrize(
    ("jobs", "chosen"),
    [
        ([job("a", 0), job("b", 1)], "a"),
        ([job("a", 0, in_line_since=9, parameters=999, epochs=9, priority=9), job("b", 1)], "a"),
        ([job("b", 4), job("a", 5)], "b"),
    ],
)
def test_first_come_first_served_looks_at_arrival_alone(jobs: list[JobView], chosen: str) -> None:
    expect(FirstComeFirstServed(), jobs, chosen, TO_COMPLETION, f"{chosen} arrived first.")


ONE_EPOCH = Quantum("epochs", 1)


@pytest.mark.parametrize(
    ("jobs", "chosen", "quantum", "reason"),
    [
        (
            [job("a", 0, priority=2), job("b", 1, priority=1)],
            "b",
            TO_COMPLETION,
            "b has priority 1, the lowest value waiting.",
        ),
        (
            [job("a", 0, priority=0), job("b", 1, priority=-5)],
            "b",
            TO_COMPLETION,
            "b has priority -5, the lowest value waiting.",
        ),
        (
            [job("a", 0, priority=1), job("b", 1, priority=1), job("c", 2, priority=2)],
            "a",
            ONE_EPOCH,
            "a has been in line longest of 2 with priority 1; 1 epoch each.",
        ),
        (
            [job("a", 0, priority=1, in_line_since=7), job("b", 1, priority=1), job("c", 2, priority=3)],
            "b",
            ONE_EPOCH,
            "b has been in line longest of 2 with priority 1; 1 epoch each.",
        ),
        (
            [job("a", 0, priority=3), job("b", 1, priority=3, in_line_since=0)],
            "a",
            ONE_EPOCH,
            "a has been in line longest of 2 with priority 3; 1 epoch each.",
        ),
    ],
    ids=["low first", "below zero", "equals share", "equals take turns", "ties by arrival"],
)
def test_priority_serves_the_lowest_value_and_lets_equals_take_turns(
    jobs: list[JobView], chosen: str, quantum: Quantum, reason: str
) -> None:
    expect(Priority(), jobs, chosen, quantum, reason)


@pytest.mark.parametrize(
    ("by", "jobs", "chosen", "quantum", "reason"),
    [
        (
            "parameters",
            [job("resnet", 0, parameters=11_000_000), job("lenet", 1, parameters=44_470, epochs=9)],
            "lenet",
            TO_COMPLETION,
            "lenet is the smallest: 44,470 weights.",
        ),
        (
            "parameters",
            [job("a", 0), job("b", 1), job("c", 2)],
            "a",
            TO_COMPLETION,
            "a is the smallest: 100 weights.",
        ),
        (
            "epochs",
            [job("a", 0, epochs=5, parameters=1), job("b", 1, epochs=4)],
            "b",
            TO_COMPLETION,
            "b asks for the fewest epochs: 4.",
        ),
        (
            "epochs",
            [job("a", 0, epochs=5, epochs_done=4), job("b", 1, epochs=4)],
            "b",
            TO_COMPLETION,
            "b asks for the fewest epochs: 4.",
        ),
        (
            "time",
            [job("a", 0, seconds_per_step=0.1, steps_done=1), job("b", 1)],
            "b",
            PROBE,
            "b is not measured yet; 3 steps show its speed.",
        ),
        (
            "time",
            [job("a", 0, seconds_per_step=2.0, steps_done=3), job("b", 1, seconds_per_step=1.5, steps_done=3)],
            "b",
            TO_COMPLETION,
            "b has the least time left: about 25.5 s.",
        ),
        (
            "time",
            [job("a", 0, seconds_per_step=2.0, steps_done=18), job("b", 1, seconds_per_step=1.5, steps_done=3)],
            "a",
            TO_COMPLETION,
            "a has the least time left: about 4.0 s.",
        ),
    ],
    ids=["weights", "ties by arrival", "epochs", "epochs asked for", "probe first", "measured", "what is left counts"],
)
def test_shortest_job_first_measures_length_as_asked(
    by: Any, jobs: list[JobView], chosen: str, quantum: Quantum, reason: str
) -> None:
    expect(ShortestJobFirst(by=by), jobs, chosen, quantum, reason)


@pytest.mark.parametrize(
    ("policy", "jobs", "chosen", "quantum", "turn"),
    [
        (RoundRobin(), [job("a", 0), job("b", 1)], "a", ONE_EPOCH, "1 epoch"),
        (RoundRobin(), [job("a", 0, in_line_since=2), job("b", 1)], "b", ONE_EPOCH, "1 epoch"),
        (RoundRobin(), [job("a", 0, in_line_since=1), job("b", 1)], "a", ONE_EPOCH, "1 epoch"),
        (RoundRobin(amount=3), [job("a", 0)], "a", Quantum("epochs", 3), "3 epochs"),
        (RoundRobin(unit="steps", amount=1500), [job("a", 0)], "a", Quantum("steps", 1500), "1,500 steps"),
        (RoundRobin(unit="seconds", amount=0.5), [job("a", 0)], "a", Quantum("seconds", 0.5), "0.5 seconds"),
    ],
    ids=["first turn", "next turn", "ties by arrival", "epochs", "steps", "seconds"],
)
def test_round_robin_serves_who_has_been_in_line_longest(
    policy: RoundRobin, jobs: list[JobView], chosen: str, quantum: Quantum, turn: str
) -> None:
    expect(policy, jobs, chosen, quantum, f"{chosen} has been in line longest; {turn} each.")


@pytest.mark.parametrize("amount", [0, -1, float("inf"), float("nan")])
@pytest.mark.parametrize("unit", ["epochs", "steps", "seconds"])
def test_round_robin_refuses_turns_that_cannot_be(unit: Any, amount: float) -> None:
    with pytest.raises(BadInput, match=r"policy\.amount: A turn cannot be"):
        RoundRobin(unit=unit, amount=amount)


@pytest.mark.parametrize("unit", ["epochs", "steps"])
def test_round_robin_refuses_half_an_epoch_or_step(unit: Any) -> None:
    with pytest.raises(BadInput, match=rf"Give a whole number of {unit} above 0\."):
        RoundRobin(unit=unit, amount=1.5)
