from typing import Any

import pytest

from unifiednn_core.errors import BadInput
from unifiednn_core.scheduling.registry import ParameterCard, describe, policy_named, policy_text
from unifiednn_core.scheduling.round_robin import RoundRobin
from unifiednn_core.scheduling.sjf import ShortestJobFirst


def findings_of(name: str, parameters: dict[str, Any]) -> list[tuple[str, str, str]]:
    with pytest.raises(BadInput) as caught:
        policy_named(name, parameters)
    return [(finding.field, finding.message, finding.remedy) for finding in caught.value.findings]


def test_a_policy_takes_its_parameters_and_defaults_for_the_rest() -> None:
    assert policy_named("sjf", {"by": "time"}) == ShortestJobFirst(by="time")
    assert policy_named("round_robin", {"unit": "steps"}) == RoundRobin(unit="steps", amount=1)


@pytest.mark.parametrize(
    ("name", "parameters", "text"),
    [
        ("fcfs", {}, "First come, first served"),
        ("priority", {}, "Priority"),
        ("sjf", {}, "Shortest job first, by parameters"),
        ("sjf", {"by": "epochs"}, "Shortest job first, by epochs"),
        ("round_robin", {}, "Round robin, 1 epoch each"),
        ("round_robin", {"unit": "steps", "amount": 50}, "Round robin, 50 steps each"),
        ("round_robin", {"unit": "steps", "amount": 2_000_000}, "Round robin, 2,000,000 steps each"),
        ("round_robin", {"unit": "seconds", "amount": 2.5}, "Round robin, 2.5 seconds each"),
    ],
)
def test_a_policy_says_its_parameters_in_words(name: str, parameters: dict[str, Any], text: str) -> None:
    assert policy_text(policy_named(name, parameters)) == text


def test_an_unknown_policy_is_told_the_valid_ones_and_the_closest() -> None:
    valid = "Choose one of: fcfs, priority, sjf, round_robin."
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
    ],
)
def test_a_wrong_parameter_is_named_with_its_remedy(
    name: str, parameters: dict[str, Any], field: str, remedy: str
) -> None:
    assert [(found, told) for found, _, told in findings_of(name, parameters)] == [(field, remedy)]


def test_every_mistake_is_found_at_once() -> None:
    fields = [field for field, _, _ in findings_of("round_robin", {"amont": 2, "unit": 3, "amount": "x"})]
    assert fields == ["policy.amont", "policy.unit", "policy.amount"]


def test_a_huge_value_is_shown_shortened() -> None:
    [(_, message, _)] = findings_of("sjf", {"by": "x" * 100_000})
    assert len(message) < 200


def test_cards_tell_pages_what_can_be_chosen() -> None:
    cards = {card.name: card.parameters for card in describe()}
    assert list(cards) == ["fcfs", "priority", "sjf", "round_robin"]
    assert cards["sjf"] == (
        ParameterCard(
            name="by",
            default="parameters",
            valid="parameters, epochs or time",
            choices=("parameters", "epochs", "time"),
        ),
    )
    assert [(card.name, card.default, card.choices) for card in cards["round_robin"]] == [
        ("unit", "epochs", ("epochs", "steps", "seconds")),
        ("amount", 1, ()),
    ]
