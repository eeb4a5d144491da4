import pytest
import torch
from torch import nn

from tests.integration.kit import NETWORKS, definition, submodel_spec
from unifiednn_core.architectures import registry
from unifiednn_core.hybrid.graph import LAYERS_PER_BOX, MAX_BOXES, layer_graph, to_dot
from unifiednn_core.hybrid.unifier import HybridModel, Submission, unify


def hybrid() -> HybridModel:
    return unify(
        Submission(name, definition(name), submodel_spec(name, optimizer="adam").hyperparameters)
        for name in ("cnn", "lstm", "mlp")
    )


def test_each_submodel_is_one_sequential_with_parts_of_its_own() -> None:
    merged = hybrid()
    assert merged.names == ("cnn", "lstm", "mlp")
    parts = [merged.part(name) for name in merged.names]
    assert all(type(part.module) is nn.Sequential for part in parts)
    assert len({id(part.optimizer) for part in parts}) == 3
    groups = [{id(p) for group in part.optimizer.param_groups for p in group["params"]} for part in parts]
    assert groups == [{id(p) for p in part.module.parameters()} for part in parts]
    assert not (groups[0] & groups[1] or groups[1] & groups[2] or groups[0] & groups[2])
    assert {id(p) for p in merged.parameters()} == set.union(*groups)


def test_no_gradient_crosses_from_one_to_another() -> None:
    merged = hybrid()
    merged("cnn", torch.randn(3, 1, 6, 6)).sum().backward()
    assert all(p.grad is not None for p in merged.part("cnn").module.parameters())
    assert all(p.grad is None for name in ("lstm", "mlp") for p in merged.part(name).module.parameters())


def test_adding_and_removing_touches_nobody_else() -> None:
    merged = hybrid()
    before = {key: tensor.clone() for key, tensor in merged.part("cnn").state_dict().items()}
    removed = merged.remove("lstm")
    assert merged.names == ("cnn", "mlp")
    assert not {id(p) for p in removed.module.parameters()} & {id(p) for p in merged.parameters()}
    merged.add(Submission("forward", definition("mlp"), submodel_spec("x").hyperparameters))
    assert merged.names == ("cnn", "mlp", "forward")
    after = merged.part("cnn").state_dict()
    assert all(torch.equal(before[key], after[key]) for key in before)
    with pytest.raises(ValueError, match="already holds"):
        merged.add(Submission("cnn", definition("cnn"), submodel_spec("x").hyperparameters))
    with pytest.raises(KeyError):
        merged.remove("lstm")


def test_weights_go_under_the_keys_of_the_submitted_network() -> None:
    part = hybrid().part("lstm")
    assert list(part.state_dict()) == list(NETWORKS["lstm"]().state_dict())


def test_the_drawing_has_one_cluster_for_each_and_one_global_input_and_output() -> None:
    dot = to_dot(hybrid())
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


def test_skip_connections_are_drawn() -> None:
    with torch.device("meta"):
        graph = layer_graph(registry.build("resnet", {"blocks": [1, 1, 1, 1], "width": 16, "channels": 1}))
    out_of = [sum(a == layer for a, _ in graph.edges) for layer in range(len(graph.labels))]
    assert max(out_of) == 2
    assert "Conv2d" in graph.labels
    assert "add" in graph.labels


def test_a_deep_network_stays_readable() -> None:
    deep = nn.Sequential(*(nn.Linear(2, 2) for _ in range(1000)))
    merged = HybridModel()
    part = definition("mlp")
    merged.add(
        Submission("deep", type(part)(**{**_fields(part), "build": lambda: deep}), submodel_spec("d").hyperparameters)
    )
    boxes = [line for line in to_dot(merged).splitlines() if line.strip().startswith("m0_") and "label" in line]
    assert len(boxes) == MAX_BOXES
    assert boxes[0].count("Linear") == LAYERS_PER_BOX
    assert "more" in boxes[-1]


def _fields(part: object) -> dict[str, object]:
    import dataclasses

    return {field.name: getattr(part, field.name) for field in dataclasses.fields(part)}  # type: ignore[arg-type]


def test_a_network_that_cannot_be_traced_is_drawn_by_its_layers() -> None:
    class Branching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(2, 2), nn.ReLU()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.one(x) if x.sum() > 0 else self.two(x)

    assert layer_graph(Branching()).labels == ("Linear", "ReLU")
