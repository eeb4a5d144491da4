import json
from typing import Any

import pytest
from pydantic import ValidationError

from unifiednn_core.base.errors import BadInput
from unifiednn_core.spec.run import RunSpec, parse_run
from unifiednn_core.spec.split import RECOVERY_SHARE, in_one_piece, split_in, waits_for

NETWORK: dict[str, Any] = {
    "name": "mlp",
    "model": "m",
    "train_data": "t",
    "split": {"at": ["2", "4"]},
    "hyperparameters": {
        "epochs": 9,
        "learning_rate": 0.5,
        "criterion_args": {"label_smoothing": 0.1},
        "early_stopping": {"metric": "test_accuracy"},
        "lr_scheduler": {"name": "exponential", "args": {"gamma": 0.9}},
    },
}


def of(**changes: Any) -> RunSpec:
    return parse_run({"submodels": [NETWORK | changes]})


def test_a_split_network_becomes_its_parts_and_the_network_that_waits_for_them() -> None:
    spec = of()
    *coded, last, whole = spec.submodels
    assert [one.name for one in spec.submodels] == ["mlp-1", "mlp-2", "mlp-3", "mlp"]
    for one in coded:
        hyper = one.hyperparameters
        assert (hyper.criterion, hyper.criterion_args, hyper.epochs) == ("mse", {}, 9)
        assert hyper.early_stopping is not None and hyper.early_stopping.metric == "test_loss"
    assert last.hyperparameters.criterion_args == {"label_smoothing": 0.1}
    assert whole.joins and whole.hyperparameters.learning_rate == RECOVERY_SHARE * 0.5
    assert whole.hyperparameters.lr_scheduler is None
    assert waits_for(whole) == ("mlp-1", "mlp-2", "mlp-3")
    assert [waits_for(one) for one in (*coded, last)] == [(), (), ()]


def test_parts_that_learn_from_outputs_wait_for_those_before_them() -> None:
    spec = of(split={"at": ["2", "4"], "labels": "outputs", "recovery_epochs": 3})
    assert [waits_for(one) for one in spec.submodels[:3]] == [(), ("mlp-1",), ("mlp-1", "mlp-2")]
    assert spec.submodels[-1].hyperparameters.epochs == 3


def test_a_spec_that_was_read_stays_as_it_is() -> None:
    spec = of()
    assert parse_run(json.loads(spec.to_json())) == spec


@pytest.mark.parametrize("recovery_epochs", [0, 3])
def test_in_one_piece_a_network_is_the_one_that_was_asked_for(recovery_epochs: int) -> None:
    spec = of(split={"at": ["2", "4"], "recovery_epochs": recovery_epochs})
    assert in_one_piece(spec.submodels) == of(split=None).submodels
    assert in_one_piece(of(split=None).submodels) == of(split=None).submodels
    assert split_in(json.loads(spec.to_json())) == {"mlp-1": 1, "mlp-2": 2, "mlp-3": 3, "mlp": None}
    assert split_in(json.loads(of(split=None).to_json())) == {}


def test_each_member_of_a_sweep_is_split() -> None:
    names = [one.name for one in of(sweep={"seed": [1, 2]}, split={"at": ["2"]}).submodels]
    assert names == [f"mlp-seed{seed}{part}" for seed in (1, 2) for part in ("-1", "-2", "")]


@pytest.mark.parametrize(
    "changes",
    [
        {"hyperparameters": {"criterion": "mse"}},
        {"targets": "next"},
        {"classes": "last"},
        {"transforms": [{"name": "mixup"}]},
        {"output": "scores"},
        {"start_from": {"file": "f", "take": "weights"}},
        {"hyperparameters": {"parameter_groups": [{"names": "0.*", "frozen": True}]}},
    ],
)
def test_what_has_no_codes_of_classes_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(BadInput) as caught:
        of(**changes)
    assert [finding.field for finding in caught.value.findings] == ["submodels.mlp.split"]


@pytest.mark.parametrize("split", [{"at": []}, {"at": ["2"], "labels": "noise"}, {"at": ["2"], "recovery_epochs": -1}])
def test_a_mistake_in_the_entry_is_told_where_it_is(split: dict[str, Any]) -> None:
    with pytest.raises(BadInput) as caught:
        of(split=split)
    assert all(finding.field.startswith("submodels.mlp.split.") for finding in caught.value.findings)


def test_a_split_without_its_parts_is_never_accepted() -> None:
    whole = of().submodels[-1].model_dump(mode="json")
    alone = of().submodels[0].model_dump(mode="json")  # a part that learns codes may train apart from the others
    assert RunSpec.model_validate({"submodels": [alone]}).submodels[0].part == 1
    later = of(split={"at": ["2"], "labels": "outputs"}).submodels[1].model_dump(mode="json")
    for one in (NETWORK, whole, later, NETWORK | {"split": None, "part": 1}, NETWORK | {"part": 4}):
        with pytest.raises(ValidationError):
            RunSpec.model_validate({"submodels": [one]})
