"""What makes runs comparable, and what does not."""

from typing import Any

import pytest

from unifiednn_core.compare import fingerprint as module
from unifiednn_core.compare.fingerprint import fingerprint, machine
from unifiednn_core.spec.run import RunSpec, parse_run

PART: dict[str, Any] = {"name": "a", "model": "sha256:1", "train_data": "sha256:2", "hyperparameters": {"epochs": 2}}


def spec(part: dict[str, Any] | None = None, **changes: Any) -> RunSpec:
    return parse_run({"submodels": [PART | (part or {}), PART | {"name": "b"}], **changes})


def of(asked: RunSpec, slot: str = "cpu", threads: int = 1) -> str:
    return fingerprint(asked, slot, threads)


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "another"},
        {"policy": {"name": "round_robin"}},
        {"checkpoint": {"every_steps": 5}},
        {"recovery": "ask"},
        {"step_limit_s": 3.0},
        {"memory_limit_bytes": 10**9},
        {"device": "cpu"},
    ],
)
def test_what_steers_a_run_does_not_count(changes: dict[str, Any]) -> None:
    assert of(spec(**changes)) == of(spec())


@pytest.mark.parametrize(
    "part",
    [
        {"model": "sha256:3"},
        {"train_data": "sha256:3"},
        {"test_data": "sha256:3"},
        {"scale": 0.5},
        {"hyperparameters": {"epochs": 3}},
        {"hyperparameters": {"epochs": 2, "batch_split": 2}},
        {"hyperparameters": {"epochs": 2, "seed": 1}},
        {"hyperparameters": {"epochs": 2, "techniques": ["compression"]}},
        {"name": "c"},
    ],
)
def test_what_is_trained_counts(part: dict[str, Any]) -> None:
    assert of(spec(part)) != of(spec())


def test_parameters_of_a_technique_count_and_its_name_alone_is_its_defaults() -> None:
    def asked(*techniques: object) -> str:
        return of(spec({"hyperparameters": {"epochs": 2, "techniques": list(techniques)}}))

    assert asked("compression") == asked({"name": "compression", "bfloat16": False})
    assert asked("compression") != asked({"name": "compression", "bfloat16": True})


def test_priority_does_not_count_but_order_does() -> None:
    assert of(spec({"priority": 4})) == of(spec())
    turned = spec().model_copy(update={"submodels": spec().submodels[::-1]})
    assert of(turned) != of(spec())


def test_a_seed_counts_wherever_it_is_written() -> None:
    own = {"hyperparameters": {"epochs": 2, "seed": 5}}
    both = parse_run({"seed": 1, "submodels": [PART | own, PART | {"name": "b"} | own]})
    assert of(both) == of(spec(seed=5))
    assert of(spec(seed=5)) != of(spec(seed=6))


def test_a_seed_of_0_of_its_own_is_not_that_of_the_run() -> None:
    assert of(spec({"hyperparameters": {"epochs": 2, "seed": 0}}, seed=5)) != of(spec(seed=5))


def test_device_threads_and_versions_count(monkeypatch: pytest.MonkeyPatch) -> None:
    before = of(spec())
    assert before != of(spec(), slot="cuda:0")
    assert before != of(spec(), threads=2)
    monkeypatch.setattr(module, "versions", lambda: {"torch": "another"})
    assert before != of(spec())


def test_the_machine_is_told_in_plain_values() -> None:
    facts = machine("cpu")
    assert facts["cores"]
    assert facts["cpu"]
    assert "gpu" not in facts
