"""Transformer of PyTorch's example `word_language_model`, with its names of weights (Vaswani et al. 2017).

It tells for each place of a text which word comes next.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

MOST_LAYERS = 200
LAYER_DROPOUT = 0.1  # the example gives its own dropout to the positions alone
LARGEST_PERIOD = 10_000.0  # of the waves that encode positions
INITIAL_RANGE = 0.1  # of the weights that belong to words


class Positions(nn.Module):
    """Adds sine and cosine waves to embeddings, and drops some."""

    def __init__(self, longest: int, model_size: int, dropout: float):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        place = torch.arange(0, longest, dtype=torch.float).unsqueeze(1)
        rate = torch.exp(torch.arange(0, model_size, 2).float() * (-math.log(LARGEST_PERIOD) / model_size))
        waves = torch.stack((torch.sin(place * rate), torch.cos(place * rate)), 2).flatten(1)
        self.register_buffer("pe", waves.unsqueeze(1))

    def forward(self, x: Tensor) -> Tensor:
        """Map `[length, batch, model_size]` to the same shape."""
        result: Tensor = self.dropout(x + self.get_buffer("pe")[: len(x)])
        return result


class WordLanguageModel(nn.Module):
    """Word embeddings with waves for their places, encoder layers, and a score for each word of the vocabulary."""

    def __init__(
        self, vocabulary: int, model_size: int, heads: int, hidden: int, layers: int, dropout: float, longest: int
    ):
        super().__init__()
        layer = nn.TransformerEncoderLayer(model_size, heads, hidden, LAYER_DROPOUT)
        self.encoder = nn.TransformerEncoder(layer, layers, nn.LayerNorm(model_size), enable_nested_tensor=False)
        self.decoder = nn.Linear(model_size, vocabulary)
        self.pos_encoder = Positions(longest, model_size, dropout)
        self.input_emb = nn.Embedding(vocabulary, model_size)
        for parameter in self.encoder.parameters():
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)
        for words in (self.input_emb.weight, self.decoder.weight):
            nn.init.uniform_(words, -INITIAL_RANGE, INITIAL_RANGE)
        nn.init.zeros_(self.decoder.bias)

    def forward(self, words: Tensor) -> Tensor:
        """Map word numbers `[batch, t]` to log-probabilities `[batch, vocabulary, t]` of the next words."""
        x = self.pos_encoder(self.input_emb(words.t()) * math.sqrt(self.input_emb.embedding_dim))
        hides_later = nn.Transformer.generate_square_subsequent_mask(len(x), device=x.device)
        x = self.decoder(self.encoder(x, mask=hides_later, is_causal=True))
        return functional.log_softmax(x, dim=-1).permute(1, 2, 0)


def build(
    vocabulary: int = 33_278,
    model_size: int = 200,
    heads: int = 2,
    hidden: int = 200,
    layers: int = 2,
    dropout: float = 0.2,
    longest: int = 5000,
) -> nn.Module:
    """Make a Transformer language model; the defaults are the example's. Raises `ValueError` for bad sizes.

    Args:
        vocabulary: Words that there are (33,278 in WikiText-2 as the example reads it).
        model_size: Width of a word; even, and a multiple of `heads`.
        heads: Attention heads.
        hidden: Width of the feed-forward network.
        layers: Encoder layers.
        dropout: Probability of dropout on the embeddings.
        longest: Words of the longest text.
    """
    if min(vocabulary, model_size, heads, hidden, layers, longest) < 1:
        raise ValueError("vocabulary, model_size, heads, hidden, layers and longest must be at least 1")
    if model_size % 2 or model_size % heads:
        raise ValueError(f"model_size must be even and a multiple of heads; {model_size} is not")
    if layers > MOST_LAYERS:
        raise ValueError(f"layers must be at most {MOST_LAYERS}")
    if not 0 <= dropout < 1:
        raise ValueError("dropout must be at least 0 and below 1")
    return WordLanguageModel(vocabulary, model_size, heads, hidden, layers, dropout, longest)
