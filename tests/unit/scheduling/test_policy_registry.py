import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.unit.plugins import install
from unifiednn_core.base.errors import BadInput
from unifiednn_core.scheduling import registry
from unifiednn_core.scheduling.base import TO_COMPLETION, Decision, View
from unifiednn_core.scheduling.registry import ParameterCard, describe, policy_named, register_policy
from unifiednn_core.scheduling.round_robin import RoundRobin
from unifiednn_core.scheduling.sjf import ShortestJobFirst
from unifiednn_core.testing.policies import check_policy

NAMES = ["fcfs", "priority", "sjf", "round_robin", "srtf", "fair", "finish_time", "deadline", "las"]


def findings_of(name: str, parameters: dict[str, Any]) -> list[tuple[str, str, str]]:
    with pytest.raises(BadInput) as caught:
        policy_named(name, parameters)
    return [(finding.field, finding.message, finding.remedy) for finding in caught.value.findings]


def test_a_policy_takes_its_parameters_and_defaults_for_the_rest() -> None:
    assert policy_named("sjf", {"by": "time"}) == ShortestJobFirst(by="time")
    assert policy_named("round_robin", {"unit": "steps"}) == RoundRobin(unit="steps", amount=1)


def test_an_unknown_policy_names_the_valid_ones_and_the_closest() -> None:
    valid = f"Choose one of: {', '.join(NAMES)}."
    assert findings_of("Round-Robin", {}) == [
        ("policy.name", "There is no policy 'Round-Robin'. Did you mean 'round_robin'?", valid)
    ]
    assert findings_of("magic", {}) == [("policy.name", "There is no policy 'magic'.", valid)]


@pytest.mark.parametrize(
    ("name", "parameters", "field", "remedy"),
    [
        ("sjf", {"by": "weight"}, "policy.by", "Give parameters, epochs or time."),
        ("sjf", {"bye": "time"}, "policy.bye", "Choose from: by."),
        ("fcfs", {"by": "time"}, "policy.by", "Remove it: this policy has no parameters."),
        ("round_robin", {"unit": "hours"}, "policy.unit", "Give epochs, steps or seconds."),
        ("round_robin", {"amount": "many"}, "policy.amount", "Give a number above 0, whole for epochs and steps."),
        ("round_robin", {"amount": None}, "policy.amount", "Give a number above 0, whole for epochs and steps."),
        ("round_robin", {"amount": 0}, "policy.amount", "Give a whole number of epochs above 0."),
        ("round_robin", {"amount": 1.5}, "policy.amount", "Give a whole number of epochs above 0."),
        ("round_robin", {"unit": "steps", "amount": 1.5}, "policy.amount", "Give a whole number of steps above 0."),
        (
            "round_robin",
            {"unit": "steps", "amount": float("inf")},
            "policy.amount",
            "Give a whole number of steps above 0.",
        ),
        ("round_robin", {"unit": "seconds", "amount": -1}, "policy.amount", "Give a number of seconds above 0."),
        ("srtf", {"hysteresis": 1}, "policy.hysteresis", "Give a share from 0 to below 1."),
        ("fair", {"turn_s": 0}, "policy.turn_s", "Give a number of seconds above 0."),
        ("finish_time", {"turn_s": "nan"}, "policy.turn_s", "Give a number of seconds above 0."),
        ("las", {"first_queue_s": 600}, "policy.second_queue_s", "Give two numbers that rise from above 0."),
    ],
)
def test_a_wrong_parameter_is_named_with_its_remedy(
    name: str, parameters: dict[str, Any], field: str, remedy: str
) -> None:
    assert [(found, said) for found, _, said in findings_of(name, parameters)] == [(field, remedy)]


def test_every_mistake_is_found_at_once() -> None:
    fields = [field for field, _, _ in findings_of("round_robin", {"amont": 2, "unit": 3, "amount": "x"})]
    assert fields == ["policy.amont", "policy.unit", "policy.amount"]


MODULE = """
from dataclasses import dataclass
from typing import ClassVar
from unifiednn_core.scheduling.base import Decision, Quantum, View

@dataclass(frozen=True)
class LatestFirst:
    name: ClassVar[str] = "latest"
    summary: ClassVar[str] = "Trains the latest arrival first, some epochs at a time."
    epochs: int = 2

    def decide(self, view: View) -> Decision:
        job = max(view.jobs, key=lambda job: job.arrival)
        return Decision(job.name, Quantum("epochs", self.epochs), f"{job.name} arrived last.")

    def __str__(self) -> str:
        return f"Latest first, {self.epochs} epochs each"

class Impostor:
    name = "impostor"

@dataclass(frozen=True)
class Double(LatestFirst):
    name: ClassVar[str] = "fcfs"
"""


@pytest.fixture
def clean() -> Iterator[None]:
    """Forget what a test adds to the registry."""
    registry._installed.cache_clear()
    yield
    registry._installed.cache_clear()
    registry._REGISTERED.clear()


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clean: None) -> None:
    """Another package with one good policy and three that cannot be used, as pip installs it."""
    points = {"latest": "LatestFirst", "impostor": "Impostor", "double": "Double", "gone": "Gone"}
    install(tmp_path, "latest_policy", MODULE, registry.ENTRY_POINTS, points)
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.usefixtures("installed")
def test_a_policy_of_another_package_is_offered_and_made_like_ours(caplog: pytest.LogCaptureFixture) -> None:
    card = describe()[-1]
    assert [known.name for known in describe()] == [*NAMES, "latest"]
    assert card.parameters == (ParameterCard(name="epochs", default=2, valid="a value of type int"),)
    policy = policy_named("latest", {"epochs": 3})
    assert str(policy) == "Latest first, 3 epochs each"
    check_policy(policy)
    assert findings_of("latest", {"epochs": "x"})[0][2] == "Give a value of type int."
    assert findings_of("lates", {})[0][1:] == (
        "There is no policy 'lates'. Did you mean 'latest'?",
        f"Choose one of: {', '.join(NAMES)}, latest.",
    )
    assert [record.getMessage() for record in caplog.records] == [
        f"The policy '{name}' (latest_policy:{cls}) cannot be used."
        for name, cls in (("impostor", "Impostor"), ("double", "Double"), ("gone", "Gone"))
    ]


@dataclass(frozen=True)
class First:
    name: ClassVar[str] = "first"
    summary: ClassVar[str] = "Trains the first in the list."

    def decide(self, view: View) -> Decision:
        return Decision(view.jobs[0].name, TO_COMPLETION, f"{view.jobs[0].name} is first.")


@pytest.mark.usefixtures("clean")
def test_a_notebook_registers_a_policy_and_may_do_so_again() -> None:
    assert register_policy(First) is First
    again = dataclasses.make_dataclass("First", [], bases=(First,), frozen=True)
    register_policy(again)
    assert policy_named("first", {}) == again()
    assert [card.name for card in describe()].count("first") == 1


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"name": "fcfs"}, "'fcfs' is taken"),
        ({"name": "latest"}, "'latest' is taken"),
        ({"summary": ""}, "lacks a name or a summary"),
        ({"decide": None}, "not a policy"),
    ],
)
def test_what_is_no_policy_is_not_registered(changes: dict[str, Any], error: str) -> None:
    broken = dataclasses.make_dataclass("Broken", [], bases=(First,), namespace=changes, frozen=True)
    with pytest.raises((TypeError, ValueError), match=error):
        register_policy(broken)


@pytest.mark.usefixtures("clean")
def test_every_parameter_of_a_policy_needs_a_default() -> None:
    broken = dataclasses.make_dataclass("Broken", [("epochs", int)], bases=(First,), frozen=True)
    with pytest.raises(TypeError, match="parameter without a default"):
        register_policy(broken)
    assert "first" not in [card.name for card in describe()]
