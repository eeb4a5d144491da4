"""Transformer encoder that classifies a sequence of rows (Vaswani et al. 2017; layer norm first, Xiong et al. 2020)."""

import torch
from torch import Tensor, nn
from torch.nn import functional

MOST_LAYERS = 200


class SelfAttention(nn.Module):
    """Multi-head attention of every row to every row, without a mask."""

    attend = staticmethod(functional.scaled_dot_product_attention)

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
        mixed = self.attend(query, key, value, dropout_p=dropout)
        result: Tensor = self.output(mixed.transpose(1, 2).flatten(2))
        return result


class EncoderLayer(nn.Module):
    """Self-attention and a feed-forward network of four times the width, each with a shortcut."""

    def __init__(self, model_size: int, heads: int, dropout: float):
        super().__init__()
        self.norm1 = nn.LayerNorm(model_size)
        self.attention = SelfAttention(model_size, heads, dropout)
        self.norm2 = nn.LayerNorm(model_size)
        self.feed_forward = nn.Sequential(
            nn.Linear(model_size, 4 * model_size), nn.GELU(), nn.Dropout(dropout), nn.Linear(4 * model_size, model_size)
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Map `[batch, length, model_size]` to the same shape."""
        x = x + self.dropout(self.attention(self.norm1(x)))
        result: Tensor = x + self.dropout(self.feed_forward(self.norm2(x)))
        return result


class Transformer(nn.Module):
    """Adds learned positions to embedded rows, applies the encoder layers, averages and classifies."""

    def __init__(
        self, row_size: int, length: int, model_size: int, heads: int, layers: int, dropout: float, classes: int
    ):
        super().__init__()
        self.embedding = nn.Linear(row_size, model_size)
        self.position = nn.Parameter(torch.empty(length, model_size))
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.Sequential(*(EncoderLayer(model_size, heads, dropout) for _ in range(layers)))
        self.norm = nn.LayerNorm(model_size)
        self.head = nn.Linear(model_size, classes)
        nn.init.normal_(self.position, std=0.02)

    def forward(self, rows: Tensor) -> Tensor:
        """Map `[batch, length, row_size]`, or images `[batch, channels, h, row_size]`, to scores `[batch, classes]`.

        An image is read as its rows, one channel after the other. Raises `ValueError` if a sample does not have
        `length` rows.
        """
        x = self.embedding(rows.flatten(1, -2))
        if x.shape[1:] != self.position.shape:  # a single row would be broadcast silently
            raise ValueError(f"a sample has {x.shape[1]} rows, but this network takes {len(self.position)}")
        x = self.dropout(x + self.position)
        scores: Tensor = self.head(self.norm(self.layers(x)).mean(1))
        return scores


def build(
    row_size: int = 8,
    length: int = 8,
    model_size: int = 64,
    heads: int = 4,
    layers: int = 2,
    dropout: float = 0.1,
    classes: int = 10,
) -> nn.Module:
    """Make a Transformer encoder classifier. Raises `ValueError` for a bad size or dropout.

    Args:
        row_size: Numbers in one row.
        length: Rows in one sample.
        model_size: Width of a token; a multiple of `heads`.
        heads: Attention heads.
        layers: Encoder layers.
        dropout: Probability of dropout on attention weights, embeddings and the output of each sub-layer.
        classes: Number of classes.
    """
    if min(row_size, length, model_size, heads, layers, classes) < 1:
        raise ValueError("row_size, length, model_size, heads, layers and classes must be at least 1")
    if model_size % heads:
        raise ValueError(f"model_size must be a multiple of heads; {model_size} is not one of {heads}")
    if layers > MOST_LAYERS:
        raise ValueError(f"layers must be at most {MOST_LAYERS}")
    if not 0 <= dropout < 1:
        raise ValueError("dropout must be at least 0 and below 1")
    return Transformer(row_size, length, model_size, heads, layers, dropout, classes)
