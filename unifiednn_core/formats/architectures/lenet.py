"""LeNet-5 for square images (LeCun et al. 1998), with ReLU and max pooling in place of tanh and subsampling."""

from torch import Tensor, nn


class LeNet(nn.Module):
    """Two 5x5 convolutions, each followed by 2x2 pooling, and three fully connected layers."""

    def __init__(self, channels: int, image_size: int, classes: int, batch_norm: bool):
        super().__init__()
        padding = 0 if image_size >= 16 else 2  # 16 -> 12 -> 6 -> 2 -> 1: two 5x5 convolutions leave one pixel
        shrink = 4 - 2 * padding
        feature_size = ((image_size - shrink) // 2 - shrink) // 2
        self.features = nn.Sequential(
            nn.Conv2d(channels, 6, 5, padding=padding),
            nn.BatchNorm2d(6) if batch_norm else nn.Identity(),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5, padding=padding),
            nn.BatchNorm2d(16) if batch_norm else nn.Identity(),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.classifier = nn.Sequential(
            nn.Flatten(),
            nn.Linear(16 * feature_size * feature_size, 120),
            nn.ReLU(),
            nn.Linear(120, 84),
            nn.ReLU(),
            nn.Linear(84, classes),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Map images `[batch, channels, image_size, image_size]` to scores `[batch, classes]`."""
        scores: Tensor = self.classifier(self.features(images))
        return scores


def build(channels: int = 1, image_size: int = 28, classes: int = 10, batch_norm: bool = False) -> nn.Module:
    """Make a LeNet-5, padded only for images below 16 pixels. Raises `ValueError` if a size is too small.

    Args:
        channels: Channels of an image (1 for grey, 3 for colour).
        image_size: Height and width of an image in pixels, at least 4.
        classes: Number of classes.
        batch_norm: Whether batch normalisation follows each convolution. With it, the network for 28x28 grey images
            has 44,470 trainable weights.
    """
    if channels < 1 or classes < 1:
        raise ValueError("channels and classes must be at least 1")
    if image_size < 4:
        raise ValueError("image_size must be at least 4: smaller images vanish in the two poolings")
    return LeNet(channels, image_size, classes, batch_norm)
