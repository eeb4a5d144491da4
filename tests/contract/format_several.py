"""Networks with several inputs, several outputs, a loss of their own, or another course in evaluation."""

from collections import namedtuple

import torch
from torch import Tensor, nn

Scores = namedtuple("Scores", ["logits", "aux"])


class EncoderDecoder(nn.Module):
    """A Transformer that reads one sequence and writes another; a word for every place of the second."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        self.layers = nn.Transformer(8, 2, 1, 1, 16, dropout=0.1, batch_first=True)
        self.head = nn.Linear(8, 20)

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(9)
        words = self.layers(self.embedding(src), self.embedding(tgt), tgt_mask=mask, tgt_is_causal=True)
        scores: Tensor = self.head(words).transpose(1, 2)
        return scores


class Auxiliary(nn.Module):
    """A second head beside the first in training, as in GoogLeNet."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())
        self.more = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.ReLU())
        self.head, self.side = nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, images: Tensor) -> Tensor | Scores:
        early = self.body(images)
        logits: Tensor = self.head(self.more(early).mean((2, 3)))
        return Scores(logits, self.side(early.mean((2, 3)))) if self.training else logits


class StochasticDepth(nn.Module):
    """Residual blocks that are left out for some samples, in training alone."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 4, 3, padding=1)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4)) for _ in range(2))
        self.head = nn.Linear(4, 3)

    def forward(self, images: Tensor) -> Tensor:
        hidden = self.stem(images)
        for block in self.blocks:
            path = block(hidden)
            if self.training:
                path = path * torch.rand(images.shape[0], 1, 1, 1).ge(0.2) / 0.8
            hidden = torch.relu(hidden + path)
        scores: Tensor = self.head(hidden.mean((2, 3)))
        return scores


class Vae(nn.Module):
    """A variational autoencoder that returns its loss; it draws a code in training, and takes the mean otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Linear(64, 12), nn.Linear(6, 64)

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        flat = images.flatten(1)
        mean, log_variance = self.encoder(flat).chunk(2, 1)
        code = mean + torch.randn_like(mean) * (0.5 * log_variance).exp() if self.training else mean
        again = self.decoder(code)
        divergence = -0.5 * (1 + log_variance - mean.pow(2) - log_variance.exp()).sum(1)
        return {"images": again, "loss": ((again - flat).pow(2).sum(1) + divergence).mean()}
