"""VGG (Simonyan and Zisserman 2014), with torchvision's names of weights."""

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn

STAGES = 5
MOST_LAYERS = 200


class VGG(nn.Module):
    """Five stages of 3x3 convolutions, each followed by pooling, and fully connected layers."""

    def __init__(self, features: nn.Sequential, grid: int, classifier: nn.Sequential):
        super().__init__()
        self.features = features
        self.avgpool = nn.AdaptiveAvgPool2d(grid)
        self.classifier = classifier
        self.grid = (grid, grid)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
                nn.init.zeros_(module.get_parameter("bias"))
            elif isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, 0, 0.01)
                nn.init.zeros_(module.bias)

    def forward(self, images: Tensor) -> Tensor:
        """Map images `[batch, channels, h, w]` of at least 32x32 pixels to scores `[batch, classes]`."""
        x = self.features(images)
        if x.shape[-2:] != self.grid:  # pooling to the same size changes nothing, and is not deterministic on a GPU
            x = self.avgpool(x)
        scores: Tensor = self.classifier(x.flatten(1))
        return scores


def build(
    convolutions: Sequence[int] = (2, 2, 3, 3, 3),
    width: int = 64,
    batch_norm: bool = True,
    grid: int = 1,
    hidden: Sequence[int] = (),
    dropout: float = 0.5,
    channels: int = 3,
    classes: int = 10,
) -> nn.Module:
    """Make a VGG; the defaults are VGG16 with batch normalisation for 32x32 images. Raises `ValueError` for bad sizes.

    Args:
        convolutions: Number of convolutions in each of the five stages.
        width: Channels of the first stage; the next ones have 2, 4, 8 and 8 times as many.
        batch_norm: Whether batch normalisation follows each convolution.
        grid: Height and width to which the last stage is pooled (7 for ImageNet).
        hidden: Width of each hidden fully connected layer (4096 and 4096 for ImageNet).
        dropout: Probability with which each hidden activation is set to zero in training.
        channels: Channels of an image (1 for grey, 3 for colour).
        classes: Number of classes.
    """
    if len(convolutions) != STAGES or not all(1 <= number <= MOST_LAYERS for number in convolutions):
        raise ValueError(f"convolutions must be {STAGES} numbers from 1 to {MOST_LAYERS}, such as (2, 2, 3, 3, 3)")
    if min(width, grid, channels, classes, *hidden) < 1 or len(hidden) > MOST_LAYERS:
        raise ValueError(
            f"width, grid, channels, classes and at most {MOST_LAYERS} numbers in hidden must be at least 1"
        )
    if not 0 <= dropout < 1:
        raise ValueError("dropout must be at least 0 and below 1")
    features: list[nn.Module] = []
    for count, growth in zip(convolutions, (1, 2, 4, 8, 8), strict=True):
        for _ in range(count):
            features.append(nn.Conv2d(channels, width * growth, 3, padding=1))
            features += [nn.BatchNorm2d(width * growth)] if batch_norm else []
            features.append(nn.ReLU(inplace=True))
            channels = width * growth
        features.append(nn.MaxPool2d(2))
    sizes = (channels * grid * grid, *hidden)
    classifier: list[nn.Module] = []
    for fan_in, fan_out in pairwise(sizes):
        classifier += [nn.Linear(fan_in, fan_out), nn.ReLU(inplace=True), nn.Dropout(dropout)]
    return VGG(nn.Sequential(*features), grid, nn.Sequential(*classifier, nn.Linear(sizes[-1], classes)))
