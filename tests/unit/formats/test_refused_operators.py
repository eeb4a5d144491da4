"""A finding on a refused operator says which one, in which layer, and what to write instead."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from unifiednn_core.base.errors import BadInput
from unifiednn_core.formats import sanitize
from unifiednn_core.formats.sanitize import sanitized


class Layer(nn.Module):
    """Calls one function."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


class Network(nn.Module):
    """Has such a layer inside."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.body = nn.ModuleList([nn.Linear(3, 3), Layer(function)])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.body:
            x = layer(x)
        return x


@pytest.mark.parametrize(
    ("function", "name", "remedy"),
    [
        (lambda x: torch.linalg.svd(x)[1], "linalg_svd", "products of matrices"),
        (lambda x: x * x.argmax(1).bincount(minlength=3)[0], "bincount", "one_hot"),
        (lambda x: x.as_strided((2, 2), (1, 1)), "as_strided", "narrow"),
        (lambda x: torch.poisson(x.exp()), "poisson", "exponential_"),
    ],
)
def test_the_finding_names_operator_layer_and_remedy(
    function: Callable[[Tensor], Tensor], name: str, remedy: str, tmp_path: Path
) -> None:
    program = torch.export.export(Network(function), (torch.rand(4, 3),), strict=False)
    torch.export.save(program, tmp_path / "network.pt2")
    with pytest.raises(BadInput) as caught:
        sanitized(tmp_path / "network.pt2")
    (finding,) = caught.value.findings
    assert finding.title == "Operator not allowed"
    assert f"an operator that a network here may not use: {name} in the layer 'body.1' (Layer)." in finding.message
    assert remedy in finding.remedy


@pytest.mark.parametrize("metadata", [None, [], {"nn_module_stack": 3}, {"nn_module_stack": "L__self__,<b>,x"}])
def test_a_file_cannot_make_the_message_say_anything_else(metadata: object) -> None:
    node = {"target": "torch.ops.aten.as_strided.default", "metadata": metadata}
    model = json.dumps({"graph_module": {"graph": {"nodes": [node]}}}).encode()
    message, _ = sanitize.explained([str(node["target"])], model)
    assert message == "The network uses an operator that a network here may not use: as_strided."


def test_operators_of_a_library_are_named_with_it() -> None:
    targets = ["torch.ops.transformers.grouped_mm_fallback.default", "torch.ops.mine.act.default"]
    model = json.dumps({"graph_module": {"graph": {"nodes": []}}}).encode()
    message, remedy = sanitize.explained(targets, model)
    assert "transformers.grouped_mm_fallback, mine.act" in message
    assert "batched_mm" in remedy and "'mine'" in remedy
