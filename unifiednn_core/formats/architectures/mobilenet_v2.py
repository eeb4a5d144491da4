"""MobileNetV2 (Sandler et al. 2018), with torchvision's names of weights."""

from torch import Tensor, nn

# Of each stage: expansion, channels, blocks, stride of the first block.
STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


class InvertedResidual(nn.Module):
    """Widens with a 1x1 convolution, filters each channel alone with 3x3, and narrows; a shortcut if shapes allow."""

    def __init__(self, channels_in: int, channels_out: int, stride: int, expansion: int):
        super().__init__()
        inner = channels_in * expansion
        widen = [_filtered(channels_in, inner, 1)] if expansion != 1 else []
        self.conv = nn.Sequential(
            *widen,
            _filtered(inner, inner, 3, stride, groups=inner),
            nn.Conv2d(inner, channels_out, 1, bias=False),
            nn.BatchNorm2d(channels_out),
        )
        self.has_shortcut = stride == 1 and channels_in == channels_out

    def forward(self, x: Tensor) -> Tensor:
        """Map `[batch, channels_in, h, w]` to `[batch, channels_out, h / stride, w / stride]`."""
        result: Tensor = x + self.conv(x) if self.has_shortcut else self.conv(x)
        return result


class MobileNetV2(nn.Module):
    """Stem, blocks, a 1x1 convolution, average, classifier."""

    def __init__(self, width: float, dropout: float, channels: int, classes: int):
        super().__init__()
        wide, last = _of_eight(32 * width), _of_eight(1280 * max(1.0, width))
        features: list[nn.Module] = [_filtered(channels, wide, 3, 2)]
        for expansion, size, blocks, stride in STAGES:
            for place in range(blocks):
                features.append(InvertedResidual(wide, _of_eight(size * width), 1 if place else stride, expansion))
                wide = _of_eight(size * width)
        features.append(_filtered(wide, last, 1))
        self.features = nn.Sequential(*features)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(nn.Dropout(dropout), nn.Linear(last, classes))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")
            elif isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, 0, 0.01)
                nn.init.zeros_(module.bias)

    def forward(self, images: Tensor) -> Tensor:
        """Map images `[batch, channels, h, w]` to scores `[batch, classes]`."""
        scores: Tensor = self.classifier(self.avgpool(self.features(images)).flatten(1))
        return scores


def _filtered(channels_in: int, channels_out: int, size: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    convolution = nn.Conv2d(channels_in, channels_out, size, stride, size // 2, groups=groups, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(channels_out), nn.ReLU6(inplace=True))


def _of_eight(channels: float) -> int:
    """Round to a multiple of 8, never down by more than a tenth."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels else rounded


def build(width: float = 1.0, dropout: float = 0.2, channels: int = 3, classes: int = 1000) -> nn.Module:
    """Make a MobileNetV2. Raises `ValueError` for bad sizes.

    Args:
        width: Factor for the channels of all layers.
        dropout: Probability of dropout before the classifier.
        channels: Channels of an image (1 for grey, 3 for colour).
        classes: Number of classes.
    """
    if not 0 < width <= 100 or min(channels, classes) < 1:
        raise ValueError("channels and classes must be at least 1, width above 0 and at most 100")
    if not 0 <= dropout < 1:
        raise ValueError("dropout must be at least 0 and below 1")
    return MobileNetV2(width, dropout, channels, classes)
