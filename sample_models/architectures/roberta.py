"""RoBERTa that classifies texts (Liu et al. 2019; XLM-RoBERTa, Conneau et al. 2020), with Hugging Face's names of
weights.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

PADDING = 1  # number of the word that fills up short texts; positions count from the next one


class RobertaAttention(nn.Module):
    """Multi-head attention of every word to every word that is no padding."""

    def __init__(self, model_size: int, heads: int, dropout: float):
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.query = nn.Linear(model_size, model_size)
        self.key = nn.Linear(model_size, model_size)
        self.value = nn.Linear(model_size, model_size)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Map `[batch, length, model_size]` to the same shape; `mask` `[batch, 1, 1, length]` is false at padding."""
        query, key, value = (part(x).unflatten(-1, (self.heads, -1)) for part in (self.query, self.key, self.value))
        dropout = self.dropout if self.training else 0.0
        mixed = functional.scaled_dot_product_attention(
            query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), attn_mask=mask, dropout_p=dropout
        )
        return mixed.transpose(1, 2).flatten(2)


class Output(nn.Module):
    """A linear layer with dropout, added to a shortcut and normalised."""

    def __init__(self, inputs: int, model_size: int, dropout: float):
        super().__init__()
        self.dense = nn.Linear(inputs, model_size)
        self.LayerNorm = nn.LayerNorm(model_size, eps=1e-5)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, shortcut: Tensor) -> Tensor:
        """Map `[batch, length, inputs]` and the shortcut to `[batch, length, model_size]`."""
        result: Tensor = self.LayerNorm(self.dropout(self.dense(x)) + shortcut)
        return result


class RobertaLayer(nn.Module):
    """Attention and a feed-forward network."""

    def __init__(self, model_size: int, heads: int, hidden: int, dropout: float):
        super().__init__()
        attention = {
            "self": RobertaAttention(model_size, heads, dropout),
            "output": Output(model_size, model_size, dropout),
        }
        self.attention = nn.ModuleDict(attention)
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(model_size, hidden)})
        self.output = Output(hidden, model_size, dropout)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Map `[batch, length, model_size]` to the same shape."""
        x = self.attention["output"](self.attention["self"](x, mask), x)
        result: Tensor = self.output(functional.gelu(self.intermediate["dense"](x)), x)
        return result


class Embeddings(nn.Module):
    """A vector for each word, its place and its kind, normalised."""

    def __init__(self, vocabulary: int, positions: int, model_size: int, dropout: float):
        super().__init__()
        self.word_embeddings = nn.Embedding(vocabulary, model_size, padding_idx=PADDING)
        self.position_embeddings = nn.Embedding(positions, model_size, padding_idx=PADDING)
        self.token_type_embeddings = nn.Embedding(1, model_size)
        self.LayerNorm = nn.LayerNorm(model_size, eps=1e-5)
        self.dropout = nn.Dropout(dropout)

    def forward(self, words: Tensor, there: Tensor) -> Tensor:
        """Map word numbers `[batch, length]` to `[batch, length, model_size]`; `there` is false at padding."""
        places = there.cumsum(1) * there + PADDING
        x = self.word_embeddings(words) + self.position_embeddings(places)
        result: Tensor = self.dropout(self.LayerNorm(x + self.token_type_embeddings(torch.zeros_like(words))))
        return result


class Roberta(nn.Module):
    """Embeddings, layers, and a classifier that reads the first word of each text."""

    def __init__(
        self,
        vocabulary: int,
        positions: int,
        model_size: int,
        heads: int,
        hidden: int,
        layers: int,
        classes: int,
        dropout: float,
    ):
        super().__init__()
        encoder = nn.ModuleList(RobertaLayer(model_size, heads, hidden, dropout) for _ in range(layers))
        self.roberta = nn.ModuleDict(
            {
                "embeddings": Embeddings(vocabulary, positions, model_size, dropout),
                "encoder": nn.ModuleDict({"layer": encoder}),
            }
        )
        self.classifier = nn.ModuleDict(
            {"dense": nn.Linear(model_size, model_size), "out_proj": nn.Linear(model_size, classes)}
        )
        self.dropout = nn.Dropout(dropout)
        self.layers = tuple(encoder)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)

    def forward(self, words: Tensor) -> Tensor:
        """Map word numbers `[batch, length]`, with `PADDING` behind each text, to scores `[batch, classes]`."""
        there = words != PADDING
        x, mask = self.roberta["embeddings"](words, there), there[:, None, None, :]
        for layer in self.layers:
            x = layer(x, mask)
        hidden = torch.tanh(self.classifier["dense"](self.dropout(x[:, 0])))
        scores: Tensor = self.classifier["out_proj"](self.dropout(hidden))
        return scores


def build(
    vocabulary: int = 1_000,
    positions: int = 66,
    model_size: int = 64,
    heads: int = 4,
    hidden: int = 256,
    layers: int = 2,
    classes: int = 2,
    dropout: float = 0.1,
) -> nn.Module:
    """Make a small RoBERTa; XLM-RoBERTa base has 250,002 words, 514 positions, 12 layers of 12 heads, 768 and 3,072."""
    return Roberta(vocabulary, positions, model_size, heads, hidden, layers, classes, dropout)
