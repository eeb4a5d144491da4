"""Costs of operators: all of them, whose results they read, what they keep; the network stays as it is."""

import pytest
import torch
from torch import nn

from tests.unit.techniques.networks import Residual, convolutions
from tests.unit.techniques.placement.test_execute import INPUTS, graph_of
from unifiednn_core.base.errors import BadInput
from unifiednn_core.formats.weights import state_sha256
from unifiednn_core.techniques.placement.costs import MachineRates, costs
from unifiednn_core.techniques.placement.place import place


def test_what_operators_keep_is_what_autograd_saves() -> None:
    network = graph_of(convolutions)
    before, random_state = state_sha256(network.state_dict()), torch.get_rng_state()
    graph = costs(network, [INPUTS], repeats=1)
    assert state_sha256(network.state_dict()) == before and torch.equal(torch.get_rng_state(), random_state)
    assert all(one.grad is None for one in network.parameters())
    names = [op.name for op in graph.ops]
    assert names == [node.name for node in network.graph.nodes if node.op != "get_attr"]
    ops = dict(zip(names, graph.ops, strict=True))
    edges = {(names[edge.source], names[edge.target]): edge for edge in graph.edges}
    assert edges["x" if "x" in names else names[0], "conv2d"].kept
    assert edges["conv2d", "batch_norm"].kept and ops["batch_norm"].saved_bytes == 2 * 16 * 4, "mean and deviation"
    assert ops["relu"].keeps_output and not edges["batch_norm", "relu"].kept
    assert ops["relu_"].storage == names.index("conv2d_1") and ops["relu_"].output_bytes == 0, "in place"
    assert ops["flatten"].storage == names.index("dropout"), "a view"
    assert ops["conv2d"].output_bytes == 8 * 16 * 16 * 16 * 4 == edges["conv2d", "batch_norm"].gradient_bytes
    assert edges[names[0], "conv2d"].gradient_bytes == 0, "nobody asks for the gradient of the batch"
    assert all(op.forward_s > 0 for name, op in ops.items() if name not in (names[0], "output"))
    norm = next(weight for weight in graph.weights if weight.name.endswith("1.weight"))
    assert norm.size_bytes == 3 * 16 * 4 and {names[number] for number in norm.ops} == {"batch_norm"}


def test_counted_costs_are_equal_each_time_and_evaluation_keeps_nothing() -> None:
    network = graph_of(Residual)
    first = costs(network, [INPUTS], rates=MachineRates())
    assert first == costs(network, [INPUTS], rates=MachineRates()) and place(first, [None] * 2) == place(
        first, [None] * 2
    )
    network.training = False
    inference = costs(network, [INPUTS], rates=MachineRates())
    assert not inference.training and not any(edge.kept or edge.gradient_bytes for edge in inference.edges)
    conv = next(op for op in first.ops if op.name == "conv2d")
    assert conv.forward_s >= 2 * 8 * 16 * 16 * 8 * 27 / MachineRates().flops_per_s


def test_a_tied_weight_keeps_its_operators_together() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(768, 768), nn.Linear(768, 768)
            self.second.weight = self.first.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.second(self.first(x.flatten(1)).relu())

    graph = costs(graph_of(Tied), [INPUTS], rates=MachineRates())
    names = [op.name for op in graph.ops]
    assert graph.unit_of[names.index("linear")] == graph.unit_of[names.index("linear_1")]


def test_a_graph_that_calls_modules_is_refused() -> None:
    with pytest.raises(BadInput, match=r"torch\.export"):
        costs(torch.fx.symbolic_trace(nn.Sequential(nn.Linear(4, 4))), [torch.ones(1, 4)])
