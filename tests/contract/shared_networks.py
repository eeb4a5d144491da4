"""Networks that use a layer more than once, as people write them."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.contract.format_networks import Case


def backbone() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64, 6),
        nn.BatchNorm1d(6),
    )


class Siamese(nn.Module):
    """Two images, one above the other, through one backbone; the head compares them."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = backbone()
        self.head = nn.Sequential(nn.Linear(12, 8), nn.ReLU(inplace=True), nn.Linear(8, 2))

    def forward(self, pairs: Tensor) -> Tensor:
        first, second = (self.backbone(images) for images in pairs.chunk(2, 1))
        scores: Tensor = self.head(torch.cat((first, second), 1))
        return scores


class Crops(nn.Module):
    """One backbone under two names, for two crops of an image."""

    def __init__(self) -> None:
        super().__init__()
        self.left = backbone()
        self.right = nn.ModuleDict({"view": self.left})
        self.head = nn.Linear(6, 3)

    def forward(self, images: Tensor) -> Tensor:
        seen = self.left(images[..., :8]) + self.right["view"](images[..., 2:])
        scores: Tensor = self.head(seen)
        return scores


class TiedAutoencoder(nn.Module):
    """The decoder has the weights of the encoder, transposed; both ends have one normalisation."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.norm, self.drop = nn.Linear(12, 5), nn.BatchNorm1d(12), nn.Dropout(0.2)
        self.bias = nn.Parameter(torch.zeros(12))

    def forward(self, inputs: Tensor) -> Tensor:
        code = torch.tanh(self.encoder(self.drop(self.norm(inputs))))
        return self.norm(functional.linear(code, self.encoder.weight.t(), self.bias))


class Recurrent(nn.Module):
    """One cell for all steps of a sequence, with one BatchNorm and one Dropout in the loop."""

    def __init__(self) -> None:
        super().__init__()
        self.given, self.kept = nn.Linear(4, 6), nn.Linear(6, 6)
        self.norm, self.drop, self.head = nn.BatchNorm1d(6), nn.Dropout(0.3), nn.Linear(6, 3)

    def forward(self, rows: Tensor) -> Tensor:
        state = rows.new_zeros(rows.shape[0], 6)
        for step in range(5):
            state = self.drop(torch.tanh(self.norm(self.given(rows[:, step]) + self.kept(state))))
        scores: Tensor = self.head(state)
        return scores


class SharedHead(nn.Module):
    """One GroupNorm and one head with LayerNorm for two branches of other statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 4, 3), nn.Conv2d(1, 4, 3, dilation=2)
        self.group = nn.GroupNorm(2, 4)
        self.head = nn.Sequential(nn.LayerNorm(4), nn.Dropout(0.1), nn.Linear(4, 3))

    def forward(self, images: Tensor) -> Tensor:
        branches = (self.group(branch(images)).mean((2, 3)) for branch in (self.first, self.second))
        first, second = (self.head(branch) for branch in branches)
        return first + second


class Block(nn.Module):
    """A block of convolution and normalisation that refines its own output; a momentum of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 4, 1)
        self.block = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4, momentum=0.3), nn.ReLU())
        self.head = nn.Linear(4, 3)

    def forward(self, images: Tensor) -> Tensor:
        hidden = self.stem(images)
        for _ in range(3):
            hidden = hidden + self.block(hidden)
        scores: Tensor = self.head(hidden.mean((2, 3)))
        return scores


class TiedWords(nn.Module):
    """A language model whose output has the weights of its embedding, with one layer used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        self.layer = nn.GRU(8, 8, batch_first=True)
        self.norm = nn.LayerNorm(8)
        self.output = nn.Linear(8, 20)
        self.output.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.embedding(tokens)
        for _ in range(2):
            hidden = self.norm(hidden + self.layer(hidden)[0])
        scores: Tensor = self.output(hidden).transpose(1, 2)
        return scores


SHARED = {
    case.title: case
    for case in (
        Case("siamese", Siamese, (2, 8, 8), 2),
        Case("two crops", Crops, (1, 8, 10), 3),
        Case("tied autoencoder", TiedAutoencoder, (12,), 0),
        Case("recurrent", Recurrent, (5, 4), 3),
        Case("shared head", SharedHead, (1, 8, 8), 3),
        Case("block", Block, (1, 6, 6), 3),
        Case("tied words", TiedWords, (9,), 20, below=20, dense=True),
    )
}
