import inspect
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from unifiednn_core.choices import CRITERIA, LR_SCHEDULERS, OPTIMIZERS, Choice
from unifiednn_core.errors import BadInput, Finding
from unifiednn_core.spec import RunSpec, load_run, parse_hyperparameters, parse_run


def minimal(**hyperparameters: Any) -> dict[str, Any]:
    submodel = {"name": "a", "model": "a.pt2", "train_data": "d.pt", "hyperparameters": hyperparameters}
    return {"submodels": [submodel]}


def findings_of(document: object) -> list[Finding]:
    with pytest.raises(BadInput) as raised:
        parse_run(document)
    return list(raised.value.findings)


@pytest.mark.parametrize(
    ("document", "field", "said"),
    [
        (minimal(optimizer="sdg"), "submodels.a.hyperparameters.optimizer", "Did you mean 'sgd'?"),
        (minimal(optimizer="lbfgs"), "submodels.a.hyperparameters.optimizer", "adamw"),
        (minimal(learning_rate=-1), "submodels.a.hyperparameters.learning_rate", "greater than 0"),
        (minimal(learning_rate=0), "submodels.a.hyperparameters.learning_rate", "greater than 0"),
        (minimal(learning_rate=float("nan")), "submodels.a.hyperparameters.learning_rate", "NaN"),
        (minimal(epochs=0), "submodels.a.hyperparameters.epochs", "greater than or equal to 1"),
        (minimal(epochs="many"), "submodels.a.hyperparameters.epochs", "many"),
        (minimal(learning_rat=1), "submodels.a.hyperparameters.learning_rat", "spelling"),
        (minimal(optimizer_args={"momentun": 1}), "submodels.a.hyperparameters.optimizer_args", "momentum"),
        (
            minimal(optimizer_args={"momentum": float("nan")}),
            "submodels.a.hyperparameters.optimizer_args",
            "not finite",
        ),
        (minimal(techniques=["dropit"]), "submodels.a.hyperparameters.techniques", "No techniques exist"),
        (
            minimal(lr_scheduler={"name": "step"}),
            "submodels.a.hyperparameters.lr_scheduler.args",
            "'step_size'",
        ),
        ({"submodels": []}, "submodels", "Add at least one"),
        ({}, "submodels", "missing"),
        ([], "spec", "valid dictionary"),
        ({"submodels": [{"name": "../a", "model": "m", "train_data": "d"}]}, "submodels.../a.name", "cannot be a name"),
        ({**minimal(), "device": "tpu"}, "device", "pattern"),
        ({**minimal(), "profile": "fast"}, "profile", "exact"),
    ],
)
def test_each_mistake_gives_a_finding_with_field_and_remedy(document: object, field: str, said: str) -> None:
    [finding] = findings_of(document)
    assert finding.field == field
    assert said in str(finding)
    assert finding.remedy


def test_two_submodels_of_one_name_are_refused_even_in_other_letters() -> None:
    one = {"name": "net", "model": "m", "train_data": "d"}
    [finding] = findings_of({"submodels": [one, {**one, "name": "Net"}]})
    assert finding.field == "submodels.Net.name"
    assert "own name" in finding.remedy


def test_all_mistakes_are_told_at_once() -> None:
    assert len(findings_of(minimal(optimizer="x", learning_rate=-1, epochs=0))) == 3


@pytest.mark.parametrize(
    ("content", "said"),
    [(b'{"a": ', "line 1"), (b"\xff\xfe\x00", "UTF-8"), (b"[" * 100_000, "JSON"), (None, "No such file")],
)
def test_a_file_that_is_no_spec_gives_a_finding_that_names_it(tmp_path: Path, content: bytes | None, said: str) -> None:
    path = tmp_path / "spec.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BadInput) as raised:
        load_run(path)
    [finding] = raised.value.findings
    assert finding.field == str(path)
    assert said in finding.message


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
)


@given(json_values)
def test_no_json_at_all_gets_past_without_a_spec_or_findings(document: object) -> None:
    for parse in (parse_run, parse_hyperparameters):
        try:
            parse(document)
        except BadInput as error:
            assert error.findings


names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,10}", fullmatch=True)


@given(
    st.lists(names, min_size=1, max_size=4, unique_by=str.lower),
    st.sampled_from(sorted(OPTIMIZERS)),
    st.floats(1e-9, 1e3),
    st.integers(-5, 5),
)
def test_a_spec_survives_json(submodels: list[str], optimizer: str, learning_rate: float, priority: int) -> None:
    hyperparameters = {"optimizer": optimizer, "learning_rate": learning_rate}
    spec = parse_run(
        {
            "submodels": [
                {
                    "name": name,
                    "model": "m",
                    "train_data": "d",
                    "priority": priority,
                    "hyperparameters": hyperparameters,
                }
                for name in submodels
            ],
            "policy": {"name": "sjf", "by": "epochs"},
        }
    )
    assert parse_run(json.loads(spec.to_json())) == spec
    assert spec.policy.parameters == {"by": "epochs"}


def test_a_submodel_without_a_seed_takes_the_seed_of_the_run() -> None:
    spec: RunSpec = parse_run({**minimal(), "seed": 5})
    assert spec.seed_of(spec.submodels[0]) == 5
    spec = parse_run({**minimal(seed=7), "seed": 5})
    assert spec.seed_of(spec.submodels[0]) == 7


@pytest.mark.parametrize(
    ("choice", "room"),
    [
        *((choice, torch.optim) for choice in OPTIMIZERS.values()),
        *((choice, torch.nn) for choice in CRITERIA.values()),
        *((choice, torch.optim.lr_scheduler) for choice in LR_SCHEDULERS.values()),
    ],
    ids=lambda value: getattr(value, "torch_class", ""),
)
def test_the_tables_of_choices_agree_with_torch(choice: Choice, room: Any) -> None:
    parameters = inspect.signature(getattr(room, choice.torch_class)).parameters
    assert set(choice.arguments) <= set(parameters)
    assert set(choice.required) <= set(choice.arguments)
