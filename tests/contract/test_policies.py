"""Every registered policy keeps the contract; a new policy of the registry is tested here, too."""

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import pytest

from unifiednn_core.scheduling.base import TO_COMPLETION, Decision, Policy, Quantum, View
from unifiednn_core.scheduling.registry import POLICIES, describe, policy_named
from unifiednn_core.scheduling.simulator import SimulatedJob, simulate
from unifiednn_core.testing.policies import check_policy

PARAMETERS: list[tuple[str, dict[str, object]]] = [
    *((policy.name, {}) for policy in POLICIES),
    ("sjf", {"by": "epochs"}),
    ("sjf", {"by": "time"}),
    ("round_robin", {"amount": 3}),
    ("round_robin", {"unit": "steps", "amount": 2}),
    ("round_robin", {"unit": "seconds", "amount": 0.7}),
    ("srtf", {"hysteresis": 0}),
    ("las", {"first_queue_s": 1, "second_queue_s": 5}),
]


def all_policies() -> list[Policy]:
    return [policy_named(name, parameters) for name, parameters in PARAMETERS]


@pytest.mark.parametrize("policy", all_policies(), ids=str)
def test_a_registered_policy_keeps_the_contract(policy: Policy) -> None:
    check_policy(policy)


@pytest.mark.parametrize("policy", all_policies(), ids=str)
def test_equal_jobs_are_served_first_in_the_order_of_arrival(policy: Policy) -> None:
    names = ["zoe", "ann", "mia"]  # neither sorted nor reversed
    turns = simulate([SimulatedJob(name=name, epochs=2, steps_per_epoch=3) for name in names], policy)
    assert list(dict.fromkeys(part.submodel for part in turns)) == names


@pytest.mark.parametrize("policy", [p for p in all_policies() if p.name != "fcfs"], ids=str)
def test_every_other_policy_differs_from_first_come_first_served(policy: Policy) -> None:
    jobs = [
        SimulatedJob(name="large", priority=2, parameters=900, epochs=5, steps_per_epoch=40, deadline_s=500),
        SimulatedJob(name="small", priority=1, parameters=100, epochs=4, steps_per_epoch=40, deadline_s=400),
    ]
    ends = [{part.submodel: part.end_s for part in simulate(jobs, one)} for one in (policy, policy_named("fcfs", {}))]
    assert ends[0] != ends[1]


def test_the_names_of_the_policies_are_distinct() -> None:
    assert len({policy.name for policy in POLICIES}) == len(POLICIES)


def test_the_cards_describe_what_a_policy_named_without_parameters_is() -> None:
    for card in describe():
        made = policy_named(card.name, {})
        assert {parameter.name: parameter.default for parameter in card.parameters} == dataclasses.asdict(made)  # type: ignore[call-overload]
        assert all(parameter.valid for parameter in card.parameters)


@dataclass(frozen=True)
class _Good:
    """Latest arrival first; each broken policy below differs from it in one thing."""

    name: ClassVar[str] = "latest"
    summary: ClassVar[str] = "Trains the latest arrival first."

    def decide(self, view: View) -> Decision:
        chosen = max(view.jobs, key=lambda job: job.arrival)
        return Decision(chosen.name, TO_COMPLETION, f"{chosen.name} arrived last.")

    def __str__(self) -> str:
        return "Latest first"


class _Stranger(_Good):
    def decide(self, view: View) -> Decision:
        return Decision("nobody", TO_COMPLETION, "nobody is next.")


class _Silent(_Good):
    def decide(self, view: View) -> Decision:
        return dataclasses.replace(super().decide(view), reason="")


class _Remembering(_Good):
    asked: ClassVar[list[View]] = []

    def decide(self, view: View) -> Decision:
        self.asked.append(view)
        return Decision(view.jobs[0].name, Quantum("steps", len(self.asked)), f"{view.jobs[0].name} is next.")


class _Shouting(_Good):
    name = "LATEST first"


class _Unexplained(_Good):
    summary = ""


@dataclass
class _Mutable:
    name: ClassVar[str] = "mutable"
    summary: ClassVar[str] = "Can be changed."

    def decide(self, view: View) -> Decision:
        return _Good().decide(view)


@dataclass(frozen=True)
class _Unworded:
    name: ClassVar[str] = "unworded"
    summary: ClassVar[str] = "Has no text of its own."

    def decide(self, view: View) -> Decision:
        return _Good().decide(view)


def test_the_kit_accepts_a_policy_that_is_not_ours() -> None:
    check_policy(_Good())


@pytest.mark.parametrize(
    ("broken", "promise"),
    [
        (_Stranger(), "'nobody' was chosen but only"),
        (_Silent(), "the reason is a sentence"),
        (_Remembering(), "the same view must give the same decision"),
        (_Shouting(), "the name is lower case"),
        (_Unexplained(), "the summary is a sentence"),
        (_Mutable(), "a frozen dataclass"),
        (_Unworded(), "names its parameters in words"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else "",
)
def test_the_kit_refuses_a_policy_that_breaks_a_promise(broken: Policy, promise: str) -> None:
    with pytest.raises(AssertionError, match=promise):
        check_policy(broken)
