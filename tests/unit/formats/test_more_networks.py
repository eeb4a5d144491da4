"""Networks of today go through `.pt2` and train to the bits of their code: rotary tables, spectra, cells, losses."""

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrizations

from tests.unit.formats import kit
from unifiednn_core.base.errors import BadInput
from unifiednn_core.formats.exported import ExportedFormat
from unifiednn_core.formats.weights import state_sha256


class Rotary(nn.Module):
    """Turns pairs of features by complex numbers, as Llama's own code does, and mixes places by their spectrum."""

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(8, 8)
        angles = torch.outer(torch.arange(5.0), 10000.0 ** -torch.arange(0, 1, 0.25))
        self.register_buffer("table", torch.polar(torch.ones_like(angles), angles))
        self.register_buffer("fixed", torch.polar(torch.ones_like(angles), -angles), persistent=False)
        self.share = nn.Parameter(torch.randn(3, 8, 2))

    def forward(self, x: Tensor) -> Tensor:
        pairs = torch.view_as_complex(self.query(x).unflatten(-1, (4, 2)).contiguous())
        turned = torch.view_as_real(pairs * self.table * self.fixed.conj()).flatten(-2)
        spectrum = torch.fft.rfft(turned, dim=1) * torch.view_as_complex(self.share)
        mixed = torch.fft.irfft(spectrum, n=x.shape[1], dim=1) + torch.fft.fft2(x).real
        return mixed.mean(1)[:, :3]


class Cells(nn.Module):
    """Recurrence by hand, normalised weights, a mixture by positions, and noise."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.gate = nn.LSTMCell(8, 6), nn.GRUCell(6, 6)
        self.head = parametrizations.weight_norm(nn.Linear(6, 3))

    def forward(self, x: Tensor) -> Tensor:
        hidden = (x.new_zeros(x.shape[0], 6), x.new_zeros(x.shape[0], 6))
        state = x.new_zeros(x.shape[0], 6)
        for place in range(x.shape[1]):
            hidden = self.cell(x[:, place], hidden)
            state = self.gate(hidden[0] + 0.1 * torch.empty_like(hidden[0]).normal_(), state)
        best = state.topk(2, dim=1).indices
        kept = torch.zeros_like(state).scatter_(1, best, state.gather(1, best))
        far = functional.smooth_l1_loss(state, kept, reduction="none").diff(dim=1).sum(1)
        kept = kept.clone()
        kept[:, 0] = far
        scores: Tensor = self.head(torch.max(kept, state))
        return scores


class Transformed(nn.Module):
    """A spatial transformer that samples images by a grid of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.place, self.head = nn.Linear(40, 6), nn.Linear(40, 3)
        self.bag = nn.EmbeddingBag(7, 3)

    def forward(self, x: Tensor) -> Tensor:
        theta = self.place(x.flatten(1)).view(-1, 2, 3)
        images = x[:, None]
        grid = functional.affine_grid(theta, list(images.shape), align_corners=False)
        moved = functional.grid_sample(images, grid, padding_mode="border", align_corners=False)
        words = x.flatten(1)[:, :4].abs().long().remainder(7)
        scores: Tensor = self.head(moved.flatten(1)) + self.bag(words)
        return scores


def trained(network: nn.Module) -> list[object]:
    network.train()
    optimizer = torch.optim.SGD(network.parameters(), 0.05)
    torch.manual_seed(3)
    said: list[object] = []
    for _ in range(2):
        outputs = network(torch.randn(4, 5, 8))
        functional.cross_entropy(outputs, torch.tensor([0, 1, 2, 0])).backward()
        optimizer.step()
        optimizer.zero_grad()
        said.append(outputs.tolist())
    return said


@pytest.mark.parametrize("kind", [Rotary, Cells, Transformed])
def test_a_network_of_today_trains_to_the_bits_of_its_code(kind: Callable[[], nn.Module], tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = kind()
    path = kit.export(tmp_path / "network.pt2", copy.deepcopy(network).train(), torch.randn(3, 5, 8))
    built = ExportedFormat().read(path, None).build()
    assert trained(built) == trained(network)
    assert state_sha256(built.state_dict()) == state_sha256(network.state_dict())
    assert all(one.dtype == built.state_dict()[name].dtype for name, one in network.state_dict().items())


class ComplexWeight(nn.Module):
    """Has a complex weight."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, dtype=torch.complex64))

    def forward(self, x: Tensor) -> Tensor:
        return (x * self.weight).abs().mean(1)


def test_a_complex_weight_is_refused_with_the_way_to_write_it(tmp_path: Path) -> None:
    path = kit.export(tmp_path / "network.pt2", ComplexWeight(), torch.randn(3, 5, 8))
    with pytest.raises(BadInput, match="view_as_complex"):
        ExportedFormat().read(path, None)
