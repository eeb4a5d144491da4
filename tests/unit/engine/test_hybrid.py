from typing import Any

import pytest
import torch
from torch import nn

from tests.integration import kit
from tests.integration.kit import submodel_spec
from unifiednn_core.engine.graph import graph_document, layer_graph
from unifiednn_core.engine.hybrid import HybridModel
from unifiednn_core.engine.submodel import SubModel
from unifiednn_core.views.graph import graph_dot


def submodel(network: str, name: str | None = None, **hyperparameters: Any) -> SubModel:
    return kit.submodel(network, submodel_spec(name or network, **hyperparameters))


def hybrid() -> HybridModel:
    return HybridModel(submodel(name, optimizer="adam") for name in ("cnn", "lstm", "mlp"))


def test_each_submodel_is_one_sequential_with_parts_of_its_own() -> None:
    merged = hybrid()
    assert merged.names == ("cnn", "lstm", "mlp")
    assert [type(part) for part in merged.sequentials.values()] == [nn.Sequential] * 3
    assert len({id(one.optimizer) for one in merged.submodels}) == 3
    groups = [{id(p) for group in one.optimizer.param_groups for p in group["params"]} for one in merged.submodels]
    assert groups == [{id(p) for p in one.module.parameters()} for one in merged.submodels]
    assert not (groups[0] & groups[1] or groups[1] & groups[2] or groups[0] & groups[2])
    assert {id(p) for p in merged.parameters()} == set.union(*groups)


def test_no_gradient_crosses_from_one_to_another() -> None:
    merged = hybrid()
    merged("cnn", torch.randn(3, 1, 6, 6)).sum().backward()
    assert all(p.grad is not None for p in merged.submodel("cnn").module.parameters())
    assert all(p.grad is None for name in ("lstm", "mlp") for p in merged.submodel(name).module.parameters())


def test_adding_and_removing_leaves_the_others_untouched() -> None:
    merged = hybrid()
    before = {key: tensor.clone() for key, tensor in merged.submodel("cnn").module.state_dict().items()}
    removed = merged.remove("lstm")
    assert merged.names == ("cnn", "mlp")
    assert not {id(p) for p in removed.module.parameters()} & {id(p) for p in merged.parameters()}
    merged.add(submodel("mlp", "forward"))
    assert merged.names == ("cnn", "mlp", "forward")
    after = merged.submodel("cnn").module.state_dict()
    assert all(torch.equal(before[key], after[key]) for key in before)
    with pytest.raises(ValueError, match="already holds"):
        merged.add(submodel("cnn"))
    with pytest.raises(KeyError):
        merged.remove("lstm")


def test_one_network_cannot_be_two_sub_models() -> None:
    first, second = submodel("mlp", "a"), submodel("mlp", "b")
    second.module = first.module
    with pytest.raises(ValueError, match="shares parameters"):
        HybridModel([first, second])


def test_the_drawing_has_one_cluster_for_each_and_one_global_input_and_output() -> None:
    dot = graph_dot(graph_document(hybrid()))
    assert dot.count("subgraph cluster_") == 3
    assert dot.count('label="global input"') == dot.count('label="global output"') == 1
    for place, name in enumerate(("cnn", "lstm", "mlp")):
        assert f'subgraph cluster_{place} {{ label="{name}"' in dot
        assert f"input -> m{place}_0;" in dot
        assert dot.count(f"  m{place}_") and any(
            line.startswith(f"  m{place}_") and line.endswith("-> output;") for line in dot.splitlines()
        )
    edges = [line.strip(" ;").split(" -> ") for line in dot.splitlines() if " -> " in line]
    for a, b in edges:
        assert {a, b} & {"input", "output"} or a.split("_")[0] == b.split("_")[0], "an edge between two sub-models"


def test_a_network_that_cannot_be_traced_is_drawn_by_its_layers() -> None:
    class Branching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(2, 2), nn.ReLU()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.one(x) if x.sum() > 0 else self.two(x)

    assert layer_graph(Branching()).labels == ("Linear", "ReLU")
