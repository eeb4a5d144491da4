"""A placed network has the bits of the network: outputs, gradients, buffers and random state, on logical devices."""

import random

import pytest
import torch
from torch import Tensor, fx, nn

from tests.unit.techniques.networks import Residual, attention, batch, convolutions
from unifiednn_core.techniques.placement.costs import Rates, costs, exported
from unifiednn_core.techniques.placement.execute import PlacedNetwork
from unifiednn_core.techniques.placement.graph import CostGraph

CPU = torch.device("cpu")


class ManyReaders(nn.Module):
    """A value that four operators read, some on another device: the sum of their gradients depends on the order."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.others = nn.Linear(768, 64), nn.ModuleList(nn.Linear(64, 64) for _ in range(4))
        self.head = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x.flatten(1))
        parts = [other(x + number) for number, other in enumerate(self.others)]
        x.mul_(1.5)
        return self.head(torch.stack([*parts, x]).sum(0))


NETWORKS = [convolutions, attention, Residual, ManyReaders]


def graph_of(make: type[nn.Module] | object) -> fx.GraphModule:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return exported(make(), batch(8)[0])  # type: ignore[operator]


def scattered(graph: CostGraph, devices: int, seed: int) -> list[int]:
    """Put each unit on any device."""
    draw = random.Random(seed)
    where = [draw.randrange(devices) for _ in graph.units]
    return [where[unit] for unit in graph.unit_of]


def step(network: fx.GraphModule, placed: PlacedNetwork | fx.GraphModule) -> list[Tensor]:
    inputs, targets = batch(8)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        scores = placed(inputs)
        nn.functional.cross_entropy(scores, targets).backward()
        state = torch.get_rng_state()
    gradients = [one.grad for one in network.parameters() if one.grad is not None]
    return [scores, *gradients, *network.buffers(), state]


@pytest.mark.parametrize("make", NETWORKS)
@pytest.mark.parametrize("devices", [2, 4])
def test_a_step_of_a_placed_network_has_the_bits_of_the_network(make: type[nn.Module], devices: int) -> None:
    plain, network = graph_of(make), graph_of(make)
    graph = costs(network, batch(8)[:1], rates=Rates())
    placed = PlacedNetwork(network, graph, scattered(graph, devices, 3), [CPU] * devices)
    assert len(placed.training.parts) > 3
    for _ in range(2):
        expected, found = step(plain, plain), step(network, placed)
        assert len(expected) == len(found) > 4
        assert all(map(torch.equal, expected, found))
