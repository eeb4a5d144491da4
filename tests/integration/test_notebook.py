"""Plain networks and tensors, trained as a hybrid without files, store or worker."""

from weakref import WeakValueDictionary

import pytest
import torch

from tests.integration.kit import NETWORKS, dataset, definition, submodel_spec, vanilla
from unifiednn_core.engine import notebook
from unifiednn_core.engine.events import Granted, Report
from unifiednn_core.engine.notebook import submodel, train
from unifiednn_core.formats.weights import state_sha256
from unifiednn_core.scheduling.round_robin import RoundRobin
from unifiednn_core.spec.lifecycle import Event

DATA, TEST = dataset(), dataset(20, seed=1)


@pytest.fixture(autouse=True)
def _no_data_of_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notebook, "_RESIDENT", WeakValueDictionary())


def test_networks_train_in_place_to_the_bits_of_a_plain_loop() -> None:
    specs = {name: submodel_spec(name) for name in ("cnn", "lstm")}
    networks = {name: definition(name).build() for name in specs}
    test = (TEST.first, TEST.targets)
    submodels = [
        submodel(name, networks[name], DATA.first, DATA.targets, specs[name].hyperparameters, test=test, device="cpu")
        for name in specs
    ]
    [resident] = notebook._RESIDENT.values()
    reports: list[Report] = []
    ends = train(submodels, RoundRobin(), threads=1, report=reports.append)
    assert list(ends) == ["cnn", "lstm"]
    for name, ended in ends.items():
        expected, _ = vanilla(name, specs[name])
        assert ended.state_dict is not None and ended.event is Event.COMPLETE
        assert state_sha256(ended.state_dict) == state_sha256(networks[name].state_dict()) == expected
        assert [row.epoch for row in ended.figures] == [1, 2]
        assert ended.figures[-1].test_accuracy is not None
    assert [report.submodel for report in reports if isinstance(report, Granted)] == ["cnn", "lstm", "cnn", "lstm"]
    assert resident.sets == {}, "the data sets are released"


def test_equal_data_is_held_once() -> None:
    one, other = (
        submodel(name, NETWORKS["mlp"](), DATA.first.clone(), DATA.targets.to(torch.int32), device="cpu")
        for name in "ab"
    )
    assert one._train.use().inputs is other._train.use().inputs


def test_what_cannot_train_is_refused() -> None:
    with pytest.raises(ValueError, match="37 inputs and 5 targets"):
        submodel("a", NETWORKS["mlp"](), DATA.first, DATA.targets[:5])
    with pytest.raises(ValueError, match="0 inputs"):
        submodel("a", NETWORKS["mlp"](), DATA.first[:0], DATA.targets[:0])
    with pytest.raises(ValueError, match="name"):
        submodel("a b", NETWORKS["mlp"](), DATA.first, DATA.targets)
    assert train([]) == {}
