"""Transformer language model: the encoder with a causal mask of PyTorch's tutorial (Vaswani et al. 2017).

It tells for each place of a text which word comes next.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

LARGEST_PERIOD = 10_000.0  # of the waves that encode positions
INITIAL_RANGE = 0.1  # of the weights that belong to words


class CausalAttention(nn.Module):
    """Multi-head attention of every word to itself and to those before it."""

    def __init__(self, model_size: int, heads: int, dropout: float):
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.qkv = nn.Linear(model_size, 3 * model_size)
        self.output = nn.Linear(model_size, model_size)

    def forward(self, x: Tensor) -> Tensor:
        """Map `[batch, length, model_size]` to the same shape; dropout acts on the attention weights."""
        query, key, value = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind()
        dropout = self.dropout if self.training else 0.0
        mixed = functional.scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=True)
        result: Tensor = self.output(mixed.transpose(1, 2).flatten(2))
        return result


class LanguageModelLayer(nn.Module):
    """Attention and a feed-forward network, each beside a shortcut and followed by layer normalisation."""

    def __init__(self, model_size: int, heads: int, hidden: int, dropout: float):
        super().__init__()
        self.attention = CausalAttention(model_size, heads, dropout)
        self.norm1 = nn.LayerNorm(model_size)
        self.feed_forward = nn.Sequential(
            nn.Linear(model_size, hidden), nn.ReLU(), nn.Dropout(dropout), nn.Linear(hidden, model_size)
        )
        self.norm2 = nn.LayerNorm(model_size)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Map `[batch, length, model_size]` to the same shape."""
        x = self.norm1(x + self.dropout(self.attention(x)))
        result: Tensor = self.norm2(x + self.dropout(self.feed_forward(x)))
        return result


class LanguageModel(nn.Module):
    """Word embeddings with waves for their places, layers, and a score for each word of the vocabulary."""

    def __init__(
        self, vocabulary: int, length: int, model_size: int, heads: int, hidden: int, layers: int, dropout: float
    ):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, model_size)
        self.register_buffer("position", _waves(length, model_size))
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.Sequential(*(LanguageModelLayer(model_size, heads, hidden, dropout) for _ in range(layers)))
        self.head = nn.Linear(model_size, vocabulary)
        nn.init.uniform_(self.embedding.weight, -INITIAL_RANGE, INITIAL_RANGE)
        nn.init.uniform_(self.head.weight, -INITIAL_RANGE, INITIAL_RANGE)
        nn.init.zeros_(self.head.bias)

    def forward(self, words: Tensor) -> Tensor:
        """Map word numbers `[batch, t]`, t at most `length`, to scores `[batch, vocabulary, t]` of the next words."""
        position = self.get_buffer("position")
        x = self.embedding(words) * math.sqrt(position.shape[1]) + position[: words.shape[1]]
        scores: Tensor = self.head(self.layers(self.dropout(x)))
        return scores.transpose(1, 2)


def _waves(length: int, model_size: int) -> Tensor:
    """Sine and cosine of each position, for periods from 2 pi to `LARGEST_PERIOD` times that."""
    place = torch.arange(length).unsqueeze(1)
    rate = torch.exp(torch.arange(0, model_size, 2) * (-math.log(LARGEST_PERIOD) / model_size))
    return torch.stack((torch.sin(place * rate), torch.cos(place * rate)), 2).flatten(1)


def build(
    vocabulary: int = 28_782,
    length: int = 35,
    model_size: int = 200,
    heads: int = 2,
    hidden: int = 200,
    layers: int = 2,
    dropout: float = 0.2,
) -> nn.Module:
    """Make a Transformer language model; the defaults are PyTorch's tutorial on WikiText-2, with 12,025,582 weights."""
    return LanguageModel(vocabulary, length, model_size, heads, hidden, layers, dropout)
