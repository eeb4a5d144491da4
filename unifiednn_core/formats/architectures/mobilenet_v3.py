"""MobileNetV3 (Howard et al. 2019), with torchvision's names of weights."""

from torch import Tensor, nn

# Of each block: kernel, inner channels, channels, whether it weighs its channels, whether its activation is Hardswish,
# stride.
LARGE = (
    (3, 16, 16, False, False, 1),
    (3, 64, 24, False, False, 2),
    (3, 72, 24, False, False, 1),
    (5, 72, 40, True, False, 2),
    (5, 120, 40, True, False, 1),
    (5, 120, 40, True, False, 1),
    (3, 240, 80, False, True, 2),
    (3, 200, 80, False, True, 1),
    (3, 184, 80, False, True, 1),
    (3, 184, 80, False, True, 1),
    (3, 480, 112, True, True, 1),
    (3, 672, 112, True, True, 1),
    (5, 672, 160, True, True, 2),
    (5, 960, 160, True, True, 1),
    (5, 960, 160, True, True, 1),
)
SMALL = (
    (3, 16, 16, True, False, 2),
    (3, 72, 24, False, False, 2),
    (3, 88, 24, False, False, 1),
    (5, 96, 40, True, True, 2),
    (5, 240, 40, True, True, 1),
    (5, 240, 40, True, True, 1),
    (5, 120, 48, True, True, 1),
    (5, 144, 48, True, True, 1),
    (5, 288, 96, True, True, 2),
    (5, 576, 96, True, True, 1),
    (5, 576, 96, True, True, 1),
)


class ChannelWeights(nn.Module):
    """Multiplies each channel by a weight from 0 to 1 that follows from the averages of all channels."""

    def __init__(self, channels: int):
        super().__init__()
        squeezed = _of_eight(channels // 4)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc1 = nn.Conv2d(channels, squeezed, 1)
        self.fc2 = nn.Conv2d(squeezed, channels, 1)
        self.activation = nn.ReLU()
        self.scale_activation = nn.Hardsigmoid()

    def forward(self, x: Tensor) -> Tensor:
        """Map `[batch, channels, h, w]` to the same shape."""
        weights = self.scale_activation(self.fc2(self.activation(self.fc1(self.avgpool(x)))))
        result: Tensor = weights * x
        return result


class WeighedResidual(nn.Module):
    """Widens, filters each channel alone, weighs the channels and narrows; a shortcut where shapes allow."""

    def __init__(
        self, channels_in: int, size: int, inner: int, channels_out: int, weighs: bool, hardswish: bool, stride: int
    ):
        super().__init__()
        activation = nn.Hardswish if hardswish else nn.ReLU
        block: list[nn.Module] = [_filtered(channels_in, inner, 1, activation)] if inner != channels_in else []
        block.append(_filtered(inner, inner, size, activation, stride, groups=inner))
        block += [ChannelWeights(inner)] if weighs else []
        self.block = nn.Sequential(*block, _filtered(inner, channels_out, 1, None))
        self.has_shortcut = stride == 1 and channels_in == channels_out

    def forward(self, x: Tensor) -> Tensor:
        """Map `[batch, channels_in, h, w]` to `[batch, channels_out, h / stride, w / stride]`."""
        result: Tensor = self.block(x) + x if self.has_shortcut else self.block(x)
        return result


class MobileNetV3(nn.Module):
    """Stem, blocks, a 1x1 convolution, average, classifier of two layers."""

    def __init__(self, large: bool, dropout: float, channels: int, classes: int):
        super().__init__()
        features: list[nn.Module] = [_filtered(channels, 16, 3, nn.Hardswish, 2)]
        wide = 16
        for settings in LARGE if large else SMALL:
            features.append(WeighedResidual(wide, *settings))
            wide = settings[2]
        features.append(_filtered(wide, 6 * wide, 1, nn.Hardswish))
        self.features = nn.Sequential(*features)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        last = 1280 if large else 1024
        self.classifier = nn.Sequential(
            nn.Linear(6 * wide, last), nn.Hardswish(), nn.Dropout(dropout), nn.Linear(last, classes)
        )
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, 0, 0.01)
                nn.init.zeros_(module.bias)

    def forward(self, images: Tensor) -> Tensor:
        """Map images `[batch, channels, h, w]` to scores `[batch, classes]`."""
        scores: Tensor = self.classifier(self.avgpool(self.features(images)).flatten(1))
        return scores


def _filtered(
    channels_in: int,
    channels_out: int,
    size: int,
    activation: type[nn.ReLU] | type[nn.Hardswish] | None,
    stride: int = 1,
    groups: int = 1,
) -> nn.Sequential:
    convolution = nn.Conv2d(channels_in, channels_out, size, stride, size // 2, groups=groups, bias=False)
    norm = nn.BatchNorm2d(channels_out, eps=0.001, momentum=0.01)
    return nn.Sequential(convolution, norm, *([] if activation is None else [activation(inplace=True)]))


def _of_eight(channels: float) -> int:
    """Round to a multiple of 8, never down by more than a tenth."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels else rounded


def build(large: bool = True, dropout: float = 0.2, channels: int = 3, classes: int = 1000) -> nn.Module:
    """Make a MobileNetV3. Raises `ValueError` for bad sizes.

    Args:
        large: Whether it is the large network; else the small one.
        dropout: Probability of dropout before the last layer.
        channels: Channels of an image (1 for grey, 3 for colour).
        classes: Number of classes.
    """
    if min(channels, classes) < 1:
        raise ValueError("channels and classes must be at least 1")
    if not 0 <= dropout < 1:
        raise ValueError("dropout must be at least 0 and below 1")
    return MobileNetV3(large, dropout, channels, classes)
