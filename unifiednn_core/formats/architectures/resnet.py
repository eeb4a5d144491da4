"""ResNet (He et al. 2016), Wide ResNet (2016) and ResNeXt (2017), with torchvision's names of weights.

The stem for small images is a 3x3 convolution of stride 1 and no pooling, so that 8x8 and 32x32 images keep their size
until the second stage. The stem for ImageNet is a 7x7 convolution of stride 2, and pooling.
"""

from collections.abc import Sequence

from torch import Tensor, nn

STAGES = 4
MOST_BLOCKS = 200  # in one stage


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut, which is a 1x1 convolution if the shape changes."""

    expansion = 1

    def __init__(self, channels_in: int, channels: int, stride: int, groups: int, group_width: int):
        super().__init__()
        channels_out = channels
        self.conv1 = nn.Conv2d(channels_in, channels_out, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels_out)
        self.conv2 = nn.Conv2d(channels_out, channels_out, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels_out)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _shortcut(channels_in, channels_out, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Map `[batch, channels_in, h, w]` to `[batch, channels, h / stride, w / stride]`."""
        shortcut = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.bn2(self.conv2(x))
        result: Tensor = self.relu(x + shortcut)
        return result


class Bottleneck(nn.Module):
    """A 3x3 convolution, in groups for ResNeXt and with the stride, between two of 1x1 that narrow and widen."""

    expansion = 4

    def __init__(self, channels_in: int, channels: int, stride: int, groups: int, group_width: int):
        super().__init__()
        inner, channels_out = channels * group_width // 64 * groups, channels * self.expansion
        self.conv1 = nn.Conv2d(channels_in, inner, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(inner)
        self.conv2 = nn.Conv2d(inner, inner, 3, stride, padding=1, groups=groups, bias=False)
        self.bn2 = nn.BatchNorm2d(inner)
        self.conv3 = nn.Conv2d(inner, channels_out, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(channels_out)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _shortcut(channels_in, channels_out, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Map `[batch, channels_in, h, w]` to `[batch, 4 * channels, h / stride, w / stride]`."""
        shortcut = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.relu(self.bn2(self.conv2(x)))
        x = self.bn3(self.conv3(x))
        result: Tensor = self.relu(x + shortcut)
        return result


class ResNet(nn.Module):
    """Stem, four stages of blocks, classifier. Stages two to four halve the image and double the channels."""

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        blocks: Sequence[int],
        width: int,
        channels: int,
        classes: int,
        groups: int,
        group_width: int,
        imagenet_stem: bool,
    ):
        super().__init__()
        size, stride, padding = (7, 2, 3) if imagenet_stem else (3, 1, 1)
        self.conv1 = nn.Conv2d(channels, width, size, stride, padding, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1) if imagenet_stem else nn.Identity()

        def stage(number: int, channels_in: int, stride: int) -> nn.Sequential:
            inner = width * 2**number
            first = block(channels_in, inner, stride, groups, group_width)
            others = (block(inner * block.expansion, inner, 1, groups, group_width) for _ in range(blocks[number] - 1))
            return nn.Sequential(first, *others)

        grown = width * block.expansion
        self.layer1 = stage(0, width, stride=1)
        self.layer2 = stage(1, grown, stride=2)
        self.layer3 = stage(2, 2 * grown, stride=2)
        self.layer4 = stage(3, 4 * grown, stride=2)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(8 * grown, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        """Map images `[batch, channels, h, w]` to scores `[batch, classes]`."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(images))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        scores: Tensor = self.fc(self.avgpool(x).flatten(1))
        return scores


def _shortcut(channels_in: int, channels_out: int, stride: int) -> nn.Module | None:
    if stride == 1 and channels_in == channels_out:
        return None
    return nn.Sequential(nn.Conv2d(channels_in, channels_out, 1, stride, bias=False), nn.BatchNorm2d(channels_out))


def build(
    blocks: Sequence[int] = (2, 2, 2, 2),
    width: int = 64,
    channels: int = 3,
    classes: int = 10,
    bottleneck: bool = False,
    groups: int = 1,
    group_width: int = 64,
    imagenet_stem: bool = False,
) -> nn.Module:
    """Make a ResNet; the defaults are ResNet18, blocks (3, 4, 6, 3) are ResNet34. Raises `ValueError` for bad sizes.

    Args:
        blocks: Number of blocks in each of the four stages.
        width: Channels of the first stage; each later stage has twice as many.
        channels: Channels of an image (1 for grey, 3 for colour).
        classes: Number of classes.
        bottleneck: Whether a block has three convolutions (ResNet50 and larger) instead of two.
        groups: Groups of the middle convolution of a bottleneck (32 for ResNeXt50).
        group_width: Channels of each group per 64 of the stage (4 for ResNeXt50, 128 for Wide ResNet50).
        imagenet_stem: Whether the network begins as for large images: 7x7 convolution of stride 2, then pooling.
    """
    if len(blocks) != STAGES or not all(1 <= number <= MOST_BLOCKS for number in blocks):
        raise ValueError(f"blocks must be {STAGES} numbers from 1 to {MOST_BLOCKS}, such as (2, 2, 2, 2)")
    if min(width, channels, classes, groups, group_width) < 1:
        raise ValueError("width, channels, classes, groups and group_width must be at least 1")
    if not bottleneck and (groups, group_width) != (1, 64):
        raise ValueError("groups and group_width belong to a network with bottleneck = true")
    if bottleneck and width * group_width < 64:
        raise ValueError("width times group_width must be at least 64")
    block = Bottleneck if bottleneck else BasicBlock
    return ResNet(block, blocks, width, channels, classes, groups, group_width, imagenet_stem)
