"""Vision Transformer (Dosovitskiy et al. 2020), with torchvision's names of weights."""

from collections import OrderedDict

import torch
from torch import Tensor, nn

MOST_LAYERS = 200


class EncoderBlock(nn.Module):
    """Self-attention and a feed-forward network, each after layer normalisation and beside a shortcut."""

    def __init__(self, model_size: int, heads: int, hidden: int, dropout: float):
        super().__init__()
        self.ln_1 = nn.LayerNorm(model_size, eps=1e-6)
        self.self_attention = nn.MultiheadAttention(model_size, heads, batch_first=True)
        self.dropout = nn.Dropout(dropout)
        self.ln_2 = nn.LayerNorm(model_size, eps=1e-6)
        self.mlp = nn.Sequential(
            nn.Linear(model_size, hidden),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, model_size),
            nn.Dropout(dropout),
        )
        for layer in (self.mlp[0], self.mlp[3]):
            nn.init.xavier_uniform_(layer.get_parameter("weight"))
            nn.init.normal_(layer.get_parameter("bias"), std=1e-6)

    def forward(self, x: Tensor) -> Tensor:
        """Map `[batch, tokens, model_size]` to the same shape."""
        tokens = self.ln_1(x)
        x = self.dropout(self.self_attention(tokens, tokens, tokens, need_weights=False)[0]) + x
        result: Tensor = x + self.mlp(self.ln_2(x))
        return result


class Encoder(nn.Module):
    """Adds learned positions, applies the blocks and normalises."""

    def __init__(self, tokens: int, layers: int, model_size: int, heads: int, hidden: int, dropout: float):
        super().__init__()
        self.pos_embedding = nn.Parameter(torch.empty(1, tokens, model_size))
        self.dropout = nn.Dropout(dropout)
        blocks = ((f"encoder_layer_{i}", EncoderBlock(model_size, heads, hidden, dropout)) for i in range(layers))
        self.layers = nn.Sequential(OrderedDict(blocks))
        self.ln = nn.LayerNorm(model_size, eps=1e-6)
        nn.init.normal_(self.pos_embedding, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        """Map `[batch, tokens, model_size]` to the same shape."""
        result: Tensor = self.ln(self.layers(self.dropout(x + self.pos_embedding)))
        return result


class VisionTransformer(nn.Module):
    """Cuts an image into patches, encodes them with a token of their class, and classifies that token."""

    def __init__(
        self,
        image_size: int,
        patch_size: int,
        layers: int,
        heads: int,
        model_size: int,
        hidden: int,
        dropout: float,
        channels: int,
        classes: int,
    ):
        super().__init__()
        self.conv_proj = nn.Conv2d(channels, model_size, patch_size, patch_size)
        self.class_token = nn.Parameter(torch.zeros(1, 1, model_size))
        tokens = (image_size // patch_size) ** 2 + 1
        self.encoder = Encoder(tokens, layers, model_size, heads, hidden, dropout)
        self.heads = nn.Sequential(OrderedDict([("head", nn.Linear(model_size, classes))]))
        nn.init.normal_(self.conv_proj.weight, std=(channels * patch_size**2) ** -0.5)
        nn.init.zeros_(self.conv_proj.get_parameter("bias"))
        for parameter in self.heads.parameters():
            nn.init.zeros_(parameter)

    def forward(self, images: Tensor) -> Tensor:
        """Map images `[batch, channels, image_size, image_size]` to scores `[batch, classes]`."""
        patches = self.conv_proj(images).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.class_token.expand(len(patches), -1, -1), patches], dim=1)
        scores: Tensor = self.heads(self.encoder(tokens)[:, 0])
        return scores


def build(
    image_size: int = 32,
    patch_size: int = 4,
    layers: int = 6,
    heads: int = 4,
    model_size: int = 128,
    hidden: int = 256,
    dropout: float = 0.0,
    channels: int = 3,
    classes: int = 10,
) -> nn.Module:
    """Make a Vision Transformer; the defaults are a small one for 32x32 images. Raises `ValueError` for bad sizes.

    Args:
        image_size: Height and width of an image in pixels; a multiple of `patch_size`.
        patch_size: Height and width of a patch in pixels.
        layers: Encoder layers.
        heads: Attention heads.
        model_size: Width of a token; a multiple of `heads`.
        hidden: Width of the feed-forward network.
        dropout: Probability of dropout on embeddings and the output of each sub-layer.
        channels: Channels of an image (1 for grey, 3 for colour).
        classes: Number of classes.
    """
    if min(image_size, patch_size, layers, heads, model_size, hidden, channels, classes) < 1:
        raise ValueError("all sizes must be at least 1")
    if image_size % patch_size or model_size % heads:
        raise ValueError("image_size must be a multiple of patch_size, and model_size of heads")
    if layers > MOST_LAYERS:
        raise ValueError(f"layers must be at most {MOST_LAYERS}")
    if not 0 <= dropout < 1:
        raise ValueError("dropout must be at least 0 and below 1")
    return VisionTransformer(image_size, patch_size, layers, heads, model_size, hidden, dropout, channels, classes)
