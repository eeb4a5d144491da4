"""VGG with attention between its blocks (Simonyan and Zisserman 2014; CBAM, Woo et al. 2018).

Convolutions and classifier carry torchvision's names of weights; the attention modules come beside them.
"""

from collections.abc import Sequence

from torch import Tensor, cat, nn


class ChannelAttention(nn.Module):
    """Weighs channels: one small network judges their averages and their maxima."""

    def __init__(self, channels: int, reduction: int):
        super().__init__()
        hidden = max(1, channels // reduction)
        self.mlp = nn.Sequential(
            nn.Linear(channels, hidden, bias=False), nn.ReLU(), nn.Linear(hidden, channels, bias=False)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map `[batch, channels, h, w]` to the same shape."""
        judged = self.mlp(x.mean((2, 3))) + self.mlp(x.amax((2, 3)))
        result: Tensor = x * judged.sigmoid()[:, :, None, None]
        return result


class SpatialAttention(nn.Module):
    """Weighs places: a 7x7 convolution judges average and maximum over the channels."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 1, 7, padding=3, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map `[batch, channels, h, w]` to the same shape."""
        judged = self.conv(cat((x.mean(1, keepdim=True), x.amax(1, keepdim=True)), 1))
        result: Tensor = x * judged.sigmoid()
        return result


class VGG(nn.Module):
    """Blocks of 3x3 convolutions, each ended by 2x2 pooling; attention between two blocks; three linear layers."""

    def __init__(
        self,
        convolutions: Sequence[int],
        width: int,
        hidden: int,
        pooled: int,
        reduction: int,
        channels: int,
        classes: int,
        dropout: float,
    ):
        super().__init__()
        features: list[nn.Module] = []
        attention: list[nn.Module] = []
        for block, number in enumerate(convolutions):
            size = width * min(2**block, 8)
            for _ in range(number):
                features += [nn.Conv2d(channels, size, 3, padding=1), nn.ReLU(inplace=True)]
                channels = size
            features.append(nn.MaxPool2d(2))
            attention.append(nn.Sequential(ChannelAttention(size, reduction), SpatialAttention()))
        self.features = nn.Sequential(*features)
        self.attention = nn.ModuleList(attention[:-1])
        self.avgpool = nn.AdaptiveAvgPool2d(pooled)
        self.classifier = nn.Sequential(
            nn.Linear(channels * pooled * pooled, hidden),
            nn.ReLU(inplace=True),
            nn.Dropout(dropout),
            nn.Linear(hidden, hidden),
            nn.ReLU(inplace=True),
            nn.Dropout(dropout),
            nn.Linear(hidden, classes),
        )
        for module in self.features.modules():
            if isinstance(module, nn.Conv2d) and module.bias is not None:
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
                nn.init.zeros_(module.bias)

    def forward(self, images: Tensor) -> Tensor:
        """Map images `[batch, channels, h, w]`, h and w at least 32, to scores `[batch, classes]`."""
        x, attention = images, iter(self.attention)
        for module in self.features:
            x = module(x)
            if isinstance(module, nn.MaxPool2d) and (weigh := next(attention, None)) is not None:
                x = weigh(x)
        scores: Tensor = self.classifier(self.avgpool(x).flatten(1))
        return scores


def build(
    convolutions: Sequence[int] = (2, 2, 3, 3, 3),
    width: int = 8,
    hidden: int = 64,
    pooled: int = 1,
    reduction: int = 32,
    channels: int = 3,
    classes: int = 10,
    dropout: float = 0.5,
) -> nn.Module:
    """Make a VGG16 with CBAM, narrowed to an eighth; width 64, hidden 4096, pooled 7, classes 1000 is the full one."""
    return VGG(convolutions, width, hidden, pooled, reduction, channels, classes, dropout)
