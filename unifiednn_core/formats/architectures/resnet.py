"""ResNet of basic blocks for small images (He et al. 2016), with torchvision's names of weights.

The stem is the one for CIFAR: a 3x3 convolution of stride 1 and no pooling, so that 8x8 and 32x32 images keep their
size until the second stage.
"""

from collections.abc import Sequence

from torch import Tensor, nn

STAGES = 4
MOST_BLOCKS = 200  # in one stage


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut, which is a 1x1 convolution if the shape changes."""

    def __init__(self, channels_in: int, channels_out: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels_out, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels_out)
        self.conv2 = nn.Conv2d(channels_out, channels_out, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels_out)
        self.relu = nn.ReLU(inplace=True)
        self.downsample: nn.Module | None = None
        if stride != 1 or channels_in != channels_out:
            shortcut = nn.Conv2d(channels_in, channels_out, 1, stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(channels_out))

    def forward(self, x: Tensor) -> Tensor:
        """Map `[batch, channels_in, h, w]` to `[batch, channels_out, h / stride, w / stride]`."""
        shortcut = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.bn2(self.conv2(x))
        result: Tensor = self.relu(x + shortcut)
        return result


class ResNet(nn.Module):
    """Stem, four stages of basic blocks, classifier. Stages two to four halve the image and double the channels."""

    def __init__(self, blocks: Sequence[int], width: int, channels: int, classes: int):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.layer1 = _stage(blocks[0], width, width, stride=1)
        self.layer2 = _stage(blocks[1], width, 2 * width, stride=2)
        self.layer3 = _stage(blocks[2], 2 * width, 4 * width, stride=2)
        self.layer4 = _stage(blocks[3], 4 * width, 8 * width, stride=2)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(8 * width, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        """Map images `[batch, channels, h, w]` to scores `[batch, classes]`."""
        x = self.relu(self.bn1(self.conv1(images)))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        scores: Tensor = self.fc(self.avgpool(x).flatten(1))
        return scores


def _stage(blocks: int, channels_in: int, channels_out: int, stride: int) -> nn.Sequential:
    first = BasicBlock(channels_in, channels_out, stride)
    return nn.Sequential(first, *(BasicBlock(channels_out, channels_out, 1) for _ in range(blocks - 1)))


def build(blocks: Sequence[int] = (2, 2, 2, 2), width: int = 64, channels: int = 3, classes: int = 10) -> nn.Module:
    """Make a ResNet; the defaults are ResNet18, blocks (3, 4, 6, 3) are ResNet34. Raises `ValueError` for bad sizes.

    Args:
        blocks: Number of basic blocks in each of the four stages.
        width: Channels of the first stage; each later stage has twice as many.
        channels: Channels of an image (1 for grey, 3 for colour).
        classes: Number of classes.
    """
    if len(blocks) != STAGES or not all(1 <= number <= MOST_BLOCKS for number in blocks):
        raise ValueError(f"blocks must be {STAGES} numbers from 1 to {MOST_BLOCKS}, such as (2, 2, 2, 2)")
    if min(width, channels, classes) < 1:
        raise ValueError("width, channels and classes must be at least 1")
    return ResNet(blocks, width, channels, classes)
