"""Networks as people write them: a language model, an encoder-decoder, a VAE, a U-Net and a Siamese pair."""

import torch
from torch import Tensor, nn
from torch.nn import functional

WORDS, LENGTH = 23, 9


class Block(nn.Module):
    """Attention to earlier words, and two layers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.Linear(width, 3 * width)
        self.layers = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.attention(self.norm1(x)).chunk(3, -1)
        x = x + functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return x + self.layers(self.norm2(x))


class LanguageModel(nn.Module):
    """Scores of the next word at each place, [batch, length, words]."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, width), nn.Embedding(LENGTH, width)
        self.drop, self.blocks = nn.Dropout(0.1), nn.ModuleList([Block(width), Block(width)])
        self.head = nn.Linear(width, WORDS, bias=False)
        self.head.weight = self.words.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.drop(self.words(ids) + self.places(torch.arange(ids.shape[1], device=ids.device)))
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Translator(nn.Module):
    """A recurrent encoder, and a decoder that attends to it: scores of the words, [batch, length, words]."""

    def __init__(self, width: int = 12) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(WORDS, width), nn.Embedding(WORDS, width)
        self.encoder, self.decoder = nn.GRU(width, width, batch_first=True), nn.GRU(width, width, batch_first=True)
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.head = nn.Linear(2 * width, WORDS)

    def forward(self, src: Tensor, tgt: Tensor) -> dict[str, Tensor]:
        memory, state = self.encoder(self.source(src))
        hidden, _ = self.decoder(self.target(tgt), state)
        seen, _ = self.attention(hidden, memory, memory, need_weights=False)
        return {"logits": self.head(torch.cat([hidden, seen], -1)), "memory": memory}


class VAE(nn.Module):
    """Its loss for each sample: reconstruction and divergence."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Linear(36, 16), nn.Linear(4, 36)
        self.mean, self.spread = nn.Linear(16, 4), nn.Linear(16, 4)

    def forward(self, images: Tensor) -> Tensor:
        pixels = images.flatten(1)
        hidden = torch.relu(self.encoder(pixels))
        mean, spread = self.mean(hidden), self.spread(hidden)
        code = mean + torch.randn_like(spread) * torch.exp(0.5 * spread)
        rebuilt = functional.binary_cross_entropy_with_logits(self.decoder(code), pixels, reduction="none").sum(1)
        return rebuilt - 0.5 * (1 + spread - mean.pow(2) - spread.exp()).sum(1)


def conv(into: int, out: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(into, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU())


class UNet(nn.Module):
    """Scores of three classes for each pixel; halves of layers are dropped in training."""

    def __init__(self, drop_path: float = 0.2) -> None:
        super().__init__()
        self.down, self.deep, self.up = conv(3, 8), conv(8, 16), nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.last, self.head, self.drop_path = conv(16, 8), nn.Conv2d(8, 3, 1), drop_path

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        first = self.down(x)
        deep = self.deep(functional.max_pool2d(first, 2))
        if self.training and self.drop_path:
            kept = torch.rand(deep.shape[0], 1, 1, 1, device=deep.device) >= self.drop_path
            deep = deep * kept / (1 - self.drop_path)
        last = self.last(torch.cat([first, self.up(deep)], 1))
        return self.head(last), self.head(first)


class Siamese(nn.Module):
    """Whether two images show the same: one score for each pair. Both pass through the same layers."""

    def __init__(self) -> None:
        super().__init__()
        self.shared = nn.Sequential(nn.Flatten(), nn.Linear(36, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 8))
        self.head = nn.Linear(8, 1)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return self.head((self.shared(left) - self.shared(right)).abs()).squeeze(1)
