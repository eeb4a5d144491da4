"""A sweep in a spec equals the sub-models that it stands for, written out."""

import json
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unifiednn_core.base.errors import BadInput, Finding
from unifiednn_core.compare.fingerprint import asked_sha256
from unifiednn_core.spec.run import RunSpec, parse_run
from unifiednn_core.spec.sweep import MOST_MEMBERS, members_by_sweep, spaced, told_once


def swept(sweep: object, *others: dict[str, Any], name: str = "net", **entries: Any) -> dict[str, Any]:
    return {"submodels": [{"name": name, "model": "m", "train_data": "d", "sweep": sweep, **entries}, *others]}


def findings_of(document: object) -> list[Finding]:
    with pytest.raises(BadInput) as raised:
        parse_run(document)
    return list(raised.value.findings)


def test_a_sweep_stands_for_every_combination_and_its_members_know_it() -> None:
    other = {"name": "other", "model": "m", "train_data": "d"}
    spec = parse_run(swept({"learning_rate": [0.01, 1e-5], "seed": [1, 2]}, other, hyperparameters={"epochs": 3}))
    assert [part.name for part in spec.submodels] == [
        "net-lr0_01-seed1",
        "net-lr0_01-seed2",
        "net-lr1e-05-seed1",
        "net-lr1e-05-seed2",
        "other",
    ]
    told = [(p.hyperparameters.learning_rate, p.hyperparameters.seed) for p in spec.submodels[:4]]
    assert told == [(0.01, 1), (0.01, 2), (1e-5, 1), (1e-5, 2)]
    assert {p.hyperparameters.epochs for p in spec.submodels[:4]} == {3}
    assert members_by_sweep(spec.submodels) == {"net": [part.name for part in spec.submodels[:4]]}
    assert parse_run(json.loads(spec.to_json())) == spec


rates = st.lists(st.floats(1e-6, 10.0), min_size=1, max_size=4, unique=True)
seeds = st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=4, unique=True)
momenta = st.lists(st.floats(0, 0.99), min_size=1, max_size=3, unique=True)


@given(rates, seeds, momenta)
def test_a_sweep_trains_what_its_members_written_out_train(rates: Any, seeds: Any, momenta: Any) -> None:
    spec = parse_run(swept({"learning_rate": rates, "seed": seeds, "optimizer_args.momentum": momenta}))
    written = [
        {
            "name": part.name,
            "model": "m",
            "train_data": "d",
            "hyperparameters": {"learning_rate": rate, "seed": seed, "optimizer_args": {"momentum": momentum}},
        }
        for part, (rate, seed, momentum) in zip(spec.submodels, product(rates, seeds, momenta), strict=True)
    ]
    by_hand: RunSpec = parse_run({"submodels": written})
    assert asked_sha256(by_hand) == asked_sha256(spec)
    assert [part.hyperparameters for part in by_hand.submodels] == [part.hyperparameters for part in spec.submodels]


def test_names_that_would_be_too_long_or_alike_become_numbers() -> None:
    long = parse_run(swept({"seed": list(range(12))}, name="n" * 63))
    assert [len(part.name) for part in long.submodels] == [64] * 12
    assert (long.submodels[0].name[-3:], long.submodels[11].name[-3:]) == ("-01", "-12")
    alike = parse_run(
        swept({"optimizer_args.betas": [[0.9, 0.99], [0.9, 0.999]]}, hyperparameters={"optimizer": "adam"})
    )
    assert [part.name for part in alike.submodels] == ["net-betas_0_9_0_99", "net-betas_0_9_0_999"]


@pytest.mark.parametrize(
    ("sweep", "field", "said"),
    [
        ({}, "submodels.net.sweep", "with their values"),
        (None, "submodels.net.sweep", "with their values"),
        ([1], "submodels.net.sweep", "with their values"),
        ({"learning_rat": [1]}, "submodels.net.sweep.learning_rat", "Did you mean 'learning_rate'?"),
        ({"techniques": [[]]}, "submodels.net.sweep.techniques", "Choose one of"),
        ({"seed.x": [1]}, "submodels.net.sweep.seed.x", "no hyper-parameter"),
        ({"optimizer_args": [{}]}, "submodels.net.sweep.optimizer_args", "optimizer_args.weight_decay"),
        ({"learning_rate": 0.1}, "submodels.net.sweep.learning_rate", "list in brackets"),
        ({"learning_rate": []}, "submodels.net.sweep.learning_rate", "at least one value"),
        ({"learning_rate": [0.1, 0.2, 0.1]}, "submodels.net.sweep.learning_rate", "occurs twice"),
        ({"learning_rate": [0.1, -1]}, "submodels.net.sweep.learning_rate", "a number above 0"),
        ({"learning_rate": [0.1, "x"]}, "submodels.net.sweep.learning_rate", "Give a number"),
        ({"seed": [0, 1, 2.5], "epochs": [1, 2]}, "submodels.net.sweep.seed", "whole number"),
        ({"optimizer_args.momentun": [1]}, "submodels.net.sweep.optimizer_args.momentun", "dampening"),
        ({"optimizer": ["sgd", "sdg"]}, "submodels.net.sweep.optimizer", "Did you mean 'sgd'?"),
        ({"seed": list(range(100)), "epochs": [1, 2, 3]}, "submodels.net.sweep", f"at most {MOST_MEMBERS}"),
    ],
)
def test_each_mistake_in_a_sweep_gives_one_finding_at_its_entry(sweep: object, field: str, said: str) -> None:
    [finding] = findings_of(swept(sweep))
    assert finding.field == field and said in str(finding) and finding.remedy


def test_a_mistake_in_the_sub_model_is_told_once_and_not_for_each_member() -> None:
    [finding] = findings_of(swept({"seed": [1, 2, 3]}, hyperparameters={"epochs": 0}))
    assert finding.field == "submodels.net.hyperparameters.epochs"
    [finding] = findings_of(swept({"seed": [1, 2, 3]}, name="no name"))
    assert finding.field == "submodels.no name.name"


def test_a_member_that_is_called_like_another_sub_model_is_refused() -> None:
    [finding] = findings_of(swept({"seed": [1, 2]}, {"name": "NET-seed2", "model": "m", "train_data": "d"}))
    assert "own name" in finding.remedy


def test_a_range_has_both_ends_and_equal_steps() -> None:
    assert spaced(0.001, 0.1, 3, log=True) == [0.001, 0.01, 0.1]
    assert spaced(1, 4, 4, log=False) == [1.0, 2.0, 3.0, 4.0]
    assert spaced(5, 9, 1, log=False) == [5.0]


def test_what_is_found_in_all_members_is_told_once_and_everything_else_as_it_is() -> None:
    other = {"name": "other", "model": "m", "train_data": "d"}
    spec = parse_run(swept({"seed": [1, 2]}, other))

    def finding(field: str, message: str = "-") -> Finding:
        return Finding(title="-", field=field, message=message, remedy="-")

    shared = [finding(f"submodels.net-seed{seed}.test_data") for seed in (1, 2)]
    own = [
        finding("submodels.net-seed1.model"),
        finding("submodels.net-seed1.x", "1"),
        finding("submodels.net-seed2.x"),
    ]
    rest = [finding("submodels.other.test_data"), finding("device"), finding("submodels")]
    found = told_once([*shared, *own, *rest], spec.submodels)
    assert found == (finding("submodels.net.test_data"), *own, *rest)
