"""Networks on which techniques are tried, each with a batch: as modules, and as exported graphs."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor, nn

from tests.unit.formats.kit import content_of
from unifiednn_core.formats.exported import ExportedFormat
from unifiednn_core.testing.techniques import Example


def convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.Dropout(0.5),
        nn.Flatten(),
        nn.Linear(2048, 10),
    )


def layers() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(768, 128), nn.GELU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10)
    )


class Residual(nn.Module):
    """A tensor that several operators save."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 1), nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x).relu()
        x = torch.relu(x + self.second(x))
        return self.head((x * torch.sigmoid(x)).mean((2, 3)))


def attention() -> nn.Module:
    layer = nn.TransformerEncoderLayer(48, 4, 64, dropout=0.1, batch_first=True)
    return nn.Sequential(nn.Flatten(2), nn.Linear(256, 48), layer, nn.Flatten(), nn.Linear(144, 10))


def batch(samples: int = 32) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(samples, 3, 16, 16, generator=generator), torch.arange(samples) % 10


def example(make: type[nn.Module] | object, samples: int = 32, *, graph: bool = False) -> Example:
    """Make an example of a network; as a `graph` it is what torch.export makes of it."""

    def made() -> tuple[nn.Module, Tensor, Tensor]:
        inputs, targets = batch(samples)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            network = make()  # type: ignore[operator]
        return (torch.export.export(network, (inputs,)).module() if graph else network), inputs, targets

    return made


def of_file(make: type[nn.Module] | object, samples: int = 32) -> Example:
    """Make an example of a network as the format `.pt2` reads it from a file."""

    @cache
    def content() -> bytes:
        return content_of(example(make)()[0].train(), batch(3)[0])

    def made() -> tuple[nn.Module, Tensor, Tensor]:
        with TemporaryDirectory() as folder:
            path = Path(folder, "network.pt2")
            path.write_bytes(content())
            return ExportedFormat().read(path, None).build(), *batch(samples)

    return made


EXAMPLES = [example(make) for make in (convolutions, layers, Residual, attention)]
GRAPHS = [example(make, graph=True) for make in (convolutions, Residual)]
