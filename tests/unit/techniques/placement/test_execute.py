"""A placed network has the bits of the network: outputs, gradients, buffers and random state, on logical devices."""

import copy
import random
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn

from tests.unit.formats import kit
from tests.unit.techniques.networks import Residual, attention, batch, convolutions
from unifiednn_core.base.errors import ContractBroken
from unifiednn_core.formats.exported import ExportedFormat
from unifiednn_core.formats.guard import GraphGuard
from unifiednn_core.techniques.placement.costs import MachineRates, costs, exported
from unifiednn_core.techniques.placement.execute import PlacedNetwork
from unifiednn_core.techniques.placement.graph import CostGraph, Edge, Op

CPU = torch.device("cpu")
INPUTS, TARGETS = batch(8)


class ManyReaders(nn.Module):
    """Many operators read a value, some on another device, and then it changes: the order of all that matters."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.others = nn.Linear(768, 64), nn.ModuleList(nn.Linear(64, 64) for _ in range(4))
        self.head = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x.flatten(1))
        parts = [other(x + number) for number, other in enumerate(self.others)]
        same = x.view(-1, 64)
        parts += [same + 3, same + 4]
        x.mul_(1.5)
        return self.head(torch.stack([*parts, x + 1, x + 2, same + 5, same + 6]).sum(0))


NETWORKS = [convolutions, attention, Residual, ManyReaders]


@cache
def _exported(make: Callable[[], nn.Module]) -> fx.GraphModule:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return exported(make(), INPUTS)


def graph_of(make: Callable[[], nn.Module]) -> fx.GraphModule:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of torch about itself
        return copy.deepcopy(_exported(make))


def scattered(graph: CostGraph, devices: int, seed: int) -> list[int]:
    """Put each unit on any device."""
    draw = random.Random(seed)
    where = [draw.randrange(devices) for _ in graph.units]
    return [where[unit] for unit in graph.unit_of]


def placed_on(network: fx.GraphModule, devices: int, inputs: Tensor = INPUTS) -> PlacedNetwork:
    graph = costs(network, [inputs], rates=MachineRates())
    return PlacedNetwork(network, graph, scattered(graph, devices, 3), [CPU] * devices)


def step(network: nn.Module, forward: Callable[..., Any], inputs: Tensor = INPUTS) -> list[Tensor]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        scores = forward(inputs)
        if network.training:
            nn.functional.cross_entropy(scores, TARGETS[: len(inputs)] % scores.shape[-1]).backward()
        state = torch.get_rng_state()
    gradients = [one.grad for one in network.parameters() if one.grad is not None]
    return [scores, *gradients, *network.buffers(), state]


def same_bits(plain: nn.Module, network: nn.Module, placed: PlacedNetwork, inputs: Tensor = INPUTS) -> bool:
    expected, found = step(plain, plain, inputs), step(network, placed, inputs)
    return len(expected) == len(found) and all(map(torch.equal, expected, found))


@pytest.mark.parametrize("make", NETWORKS)
def test_steps_of_a_placed_network_have_the_bits_of_the_network(make: Callable[[], nn.Module]) -> None:
    for devices in (2, 4):
        plain, network = graph_of(make), graph_of(make)
        placed = placed_on(network, devices)
        assert len(placed.training.parts) > 3 and any(one.grad is None for one in network.parameters())
        assert all(same_bits(plain, network, placed) for _ in range(2))


@pytest.mark.parametrize("name", ["cnn"])
def test_a_placed_file_has_its_bits_and_its_guards_in_both_modes(name: str, tmp_path: Path) -> None:
    definition = ExportedFormat().read(kit.exported(tmp_path, name), None)
    inputs = kit.batch(name, 4)
    plain, network = definition.build(), definition.build()
    assert isinstance(network, fx.GraphModule)
    placed = placed_on(network, 2, inputs)
    assert len(placed.training.parts) > 2
    assert all(isinstance(part.module.__dict__["forward"], GraphGuard) for part in placed.training.parts)
    for mode in (True, False, True):
        plain.train(mode)
        network.train(mode)
        assert same_bits(plain, network, placed, inputs)


def test_a_part_of_a_file_checks_its_operators() -> None:
    made = fx.Graph()
    value = made.placeholder("inputs")
    value = made.call_function(torch.ops.aten.expand.default, (value, [2, 3]))
    made.output(made.call_function(torch.ops.aten.add_.Scalar, (value, 1)))
    module = fx.GraphModule(nn.Module(), made)
    names = [node.name for node in made.nodes]
    graph = CostGraph(tuple(Op(name, 0.0) for name in names), tuple(Edge(at, at + 1) for at in range(3)))
    with pytest.raises(RuntimeError, match="unsupported operation"):  # no file, so the kernel itself is asked
        PlacedNetwork(module, graph, [0, 0, 0, 1], [CPU] * 2)(torch.ones(1, 3))
    module.forward = GraphGuard(module)
    placed = PlacedNetwork(module, graph, [0, 0, 0, 1], [CPU] * 2)
    for run in (placed, lambda inputs: costs(module, [inputs])):
        with pytest.raises(ContractBroken, match="several of its entries are the same memory"):
            run(torch.ones(1, 3))


@pytest.mark.gpu
@pytest.mark.parametrize("make", NETWORKS[1:])
def test_a_network_on_a_gpu_and_the_cpu_computes_what_it_does_on_the_cpu(make: Callable[[], nn.Module]) -> None:
    plain, network = graph_of(make), graph_of(make)
    graph = costs(network, [INPUTS], rates=MachineRates())
    placed = PlacedNetwork(network, graph, scattered(graph, 2, 3), [CPU, torch.device("cuda", 0)])
    assert {one.device.type for one in network.parameters()} == {"cpu", "cuda"}
    one, other = plain(INPUTS), placed(INPUTS)
    if make is not attention:  # its dropout draws from two generators
        torch.testing.assert_close(other.cpu(), one, rtol=1e-3, atol=1e-4)
    other.square().mean().backward()
    assert all(weight.grad is not None and weight.grad.device == weight.device for weight in network.parameters())
