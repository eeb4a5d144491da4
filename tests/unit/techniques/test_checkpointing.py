"""Checkpointing leaves every bit, of weights' gradients, running statistics and random numbers, in less memory."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.unit.techniques.networks import attention, batch, convolutions, example, of_file
from unifiednn_core.base.errors import NotApplicable
from unifiednn_core.formats.draws import own_draws
from unifiednn_core.spec.techniques import Checkpointing, Compression
from unifiednn_core.techniques.build import NONE, built
from unifiednn_core.techniques.checkpointing import Segmenting, segmented
from unifiednn_core.testing.techniques import Example, check_technique, take_step


class Block(nn.Module):
    """A repeated block of two inputs, one of them by name, with dropout and running statistics."""

    def __init__(self, momentum: float | None) -> None:
        super().__init__()
        self.inner = nn.Conv2d(8, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8, momentum=momentum)
        self.drop = nn.Dropout(0.2)

    def forward(self, x: Tensor, *, share: Tensor) -> Tensor:
        return self.drop(self.norm(self.inner(x)).relu()) * share + x


class Blocks(nn.Module):
    def __init__(self, momentum: float | None = 0.1) -> None:
        super().__init__()
        self.stem, self.head = nn.Conv2d(3, 8, 1), nn.Linear(8, 10)
        self.blocks = nn.ModuleList(Block(momentum) for _ in range(5))
        self.share = nn.Parameter(torch.full((1,), 0.7))

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x, share=self.share)
        return self.head(x.mean((2, 3)))


def deep() -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(3, 8, 1)]
    for _ in range(6):
        layers += [nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Dropout(0.1)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(2048, 10))


class Rewriting(nn.Module):
    """Writes into tensors that lead from operator to operator, and has its own buffer of a strange name."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(3, 3, 3, padding=1) for _ in range(4))
        self.register_buffer("seen", torch.zeros(3))
        self.head = nn.Linear(768, 10)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
            self.seen.add_(x.detach().mean((0, 2, 3)))
            x = nn.functional.dropout(x.add_(self.seen.view(3, 1, 1)), 0.2, self.training, inplace=True)
        return self.head(x.relu_().flatten(1))


LAYERED = [example(make) for make in (convolutions, attention, lambda: Blocks(None), deep)]
OF_FILES = [of_file(make) for make in (convolutions, attention, Blocks, deep, Rewriting)]


@pytest.mark.parametrize("segments", [None, 5])
def test_the_contract(segments: int | None) -> None:
    check_technique(Checkpointing(segments=segments), [*LAYERED, *OF_FILES])


@pytest.mark.parametrize("make", [example(deep), of_file(deep)])
def test_a_deep_network_needs_less(make: Example) -> None:
    alone, cut = (take_step(*make(), techniques) for techniques in (NONE, built([Checkpointing(segments=5)])))
    assert cut.saved_bytes < 0.45 * alone.saved_bytes
    assert cut.peak_bytes < 0.6 * alone.peak_bytes


def test_it_works_with_codecs_of_what_segments_keep() -> None:
    for make in (*LAYERED, *OF_FILES):
        alone, both = (take_step(*make(), one) for one in (NONE, built([Compression(), Checkpointing()])))
        assert alone.same_bits(both)
        assert both.saved_bytes < alone.saved_bytes


def test_a_network_without_segments_is_refused() -> None:
    for network in (nn.Linear(3, 3), of_file(lambda: nn.Sequential(nn.Flatten()))()[0]):
        with pytest.raises(NotApplicable, match="checkpointing does not work here"):
            Segmenting().prepare(network)


def test_a_segment_that_writes_into_its_input_is_refused() -> None:
    class Hidden(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.mul_(2.0)

    network = nn.Sequential(nn.Flatten(), nn.Linear(768, 10), Hidden(), nn.Linear(10, 10))
    with pytest.raises(NotApplicable, match="writes into its input"):
        take_step(network, *batch(), built([Checkpointing(segments=4)]))


def test_every_operator_of_a_file_is_checked_in_its_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The guard of each segment sees each call, at new sizes and when it runs again at them."""
    seen: list[str] = []

    def checked(name: str, args: Any, kwargs: Any) -> bool:
        seen.append(name)
        return False

    monkeypatch.setattr("unifiednn_core.formats.guard.check_call", checked)
    network, inputs, targets = of_file(deep)()
    take_step(network, inputs, targets)
    whole = sorted(seen)
    seen.clear()
    techniques = built([Checkpointing()])
    take_step(network, inputs, targets, techniques)
    assert sorted(seen) == whole
    seen.clear()
    take_step(network, inputs, targets, techniques)
    assert not seen, "sizes that were checked before"
    take_step(network, inputs[:7], targets[:7], techniques)
    assert sorted(seen) == whole


def test_blocks_of_a_list_are_segments_and_layers_are_grouped() -> None:
    [run] = segmented(deep(), 5)
    assert len(run.groups) == 5
    assert not any(getattr(group[0], "inplace", False) for group in run.groups)
    assert len(segmented(Blocks(), None)) == 5


def test_autocast_is_as_it_was_when_a_segment_runs_again() -> None:
    found = []
    for techniques in (NONE, built([Checkpointing()])):
        network, inputs, targets = example(deep)()
        torch.manual_seed(0)
        with torch.random.fork_rng(devices=[]), techniques.part(network, (inputs, targets)):
            with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
                scores = network(inputs)
            nn.functional.cross_entropy(scores.float(), targets).backward()
        found.append([one.grad for one in network.parameters()])
    assert all(map(torch.equal, *found))


@pytest.mark.parametrize("make", [example(deep), of_file(deep)])
def test_a_generator_of_its_own_draws_again_what_it_drew(make: Example) -> None:
    found = []
    for techniques in (NONE, built([Checkpointing(segments=4)])):
        network, inputs, targets = make()
        own = own_draws(network)
        assert own is not None
        own.generator.manual_seed(5)
        own.begin()
        with techniques.part(network, (inputs, targets), own.generator):
            nn.functional.cross_entropy(network(inputs), targets).backward()
        own.end()
        found.append([*(one.grad for one in network.parameters()), own.generator.get_state()])
    assert all(map(torch.equal, *found))
