"""Networks, exported files and their mutations, for the tests of the intake room."""

import io
import json
import warnings
import zipfile
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

CLASSES = 3


class Residual(nn.Module):
    """Convolution, normalisation and a shortcut, with a buffer of each kind and a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 4, 3, padding=1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(4), nn.BatchNorm2d(4)
        self.conv = nn.Conv2d(4, 4, 3, padding=1)
        self.head = nn.Linear(4, CLASSES)
        self.register_buffer("gain", torch.full((1,), 0.5))
        self.register_buffer("shift", torch.arange(4.0).view(4, 1, 1), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        hidden = torch.relu(self.norm1(self.stem(images)))
        hidden = nn.functional.relu_(hidden + self.norm2(self.conv(hidden)) * self.gain + self.shift)
        scores: Tensor = self.head(hidden.mean((2, 3))) + torch.tensor([0.1, 0.2, 0.3])
        return scores


class Attention(nn.Module):
    """One Transformer layer with dropout on tokens whose embedding is tied to the output."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.register_buffer("places", torch.arange(5), persistent=False)
        self.position = nn.Embedding(5, 8)
        self.qkv = nn.Linear(8, 24)
        self.norm, self.drop = nn.LayerNorm(8), nn.Dropout(0.4)
        self.output = nn.Linear(8, 11, bias=False)
        self.output.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens) + self.position(self.places)
        mask = torch.ones(5, 5).triu(1).bool()
        mask = torch.zeros(5, 5).masked_fill(mask, float("-inf"))
        query, key, value = self.qkv(self.norm(x)).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4).unbind()
        dropout = 0.3 if self.training else 0.0
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, mask, dropout)
        scores: Tensor = self.output(x + self.drop(mixed.transpose(1, 2).reshape(tokens.shape[0], 5, 8))).mean(1)
        return scores


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(6, 8, num_layers=2, dropout=0.3, batch_first=True)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, rows: Tensor) -> Tensor:
        hidden, _ = self.lstm(rows)
        scores: Tensor = self.head(hidden[:, -1])
        return scores


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(0.4), nn.Linear(36, CLASSES)
    )


IMAGES = (1, 8, 8)
NETWORKS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], Tensor]]] = {
    "cnn": (cnn, lambda n: torch.randn(n, *IMAGES)),
    "residual": (Residual, lambda n: torch.randn(n, *IMAGES)),
    "attention": (Attention, lambda n: torch.randint(0, 11, (n, 5))),
    "lstm": (Recurrent, lambda n: torch.randn(n, 5, 6)),
}


def network(name: str, seed: int = 0) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return NETWORKS[name][0]().train()


def file_of(make: Callable[[], nn.Module], seed: int = 0) -> bytes:
    """A file of a whole network of torch's own layers, whose weights are drawn after this seed."""
    content = io.BytesIO()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        torch.save(make(), content)
    return content.getvalue()


def linear(inputs: int, classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, classes))


def batch(name: str, samples: int, seed: int = 1) -> Tensor:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return NETWORKS[name][1](samples)


def export(path: Path, module: nn.Module, *inputs: Any, dynamic: bool = True, least: int = 2) -> Path:
    """Save a network as a user would."""
    path.write_bytes(content_of(module, *inputs, dynamic=dynamic, least=least))
    return path


def content_of(module: nn.Module, *inputs: Any, dynamic: bool = True, least: int = 2) -> bytes:
    shapes = tuple({0: torch.export.Dim("batch", min=least, max=4096)} for _ in inputs) if dynamic else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns about itself here
        program = torch.export.export(module, inputs, dynamic_shapes=shapes, strict=False)
        content = io.BytesIO()
        torch.export.save(program, content)
    return content.getvalue()


@cache
def exported_content(name: str) -> bytes:
    return content_of(network(name), batch(name, 3))


def exported(folder: Path, name: str) -> Path:
    path = folder / f"{name}.pt2"
    path.write_bytes(exported_content(name))
    return path


def entries_of(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def mutated(
    source: Path,
    target: Path,
    edit: Callable[[Any], object] | None = None,
    *,
    entry: str = "archive/models/model.json",
    replace: Mapping[str, bytes] | None = None,
    compression: int = zipfile.ZIP_STORED,
) -> Path:
    """A copy of an archive with one JSON entry edited, and entries replaced or added."""
    entries = entries_of(source)
    if edit is not None:
        document = json.loads(entries[entry])
        edit(document)
        entries[entry] = json.dumps(document).encode()
    entries.update(replace or {})
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", compression) as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    target.write_bytes(content.getvalue())
    return target


def graph_of(document: Any) -> Any:
    return document["graph_module"]["graph"]
