"""The six networks of the paper's table 2: full size, and narrowed for a CPU. No torch in here.

The paper prints numbers of weights alone; which networks these are is inferred from them, and the table cuts digits off
(21,328,292 is printed as 21.32 x 10^6).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from unifiednn_core.formats.architectures import registry

Scale = Literal["cpu", "paper"]
SCALES: tuple[Scale, ...] = ("cpu", "paper")


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """One network of the table, by an architecture of the registry or of `sample_models/architectures`."""

    title: str
    """As the paper calls it."""
    printed: str
    """Weights as the paper prints them."""
    parameters: int
    """Trainable weights of the full network."""
    architecture: str
    full: Mapping[str, Any]
    narrow: Mapping[str, Any]
    reading: str
    """How the paper's entry was read."""
    sample: Mapping[Scale, tuple[int, ...]]
    """Shape of one input."""
    dtype: str = "float32"
    """Of the inputs."""

    @property
    def suffix(self) -> str:
        """Of its file: `.pt2` where the product does not build the network by name."""
        return ".safetensors" if self.architecture in registry.names() else ".pt2"

    def args(self, scale: Scale) -> dict[str, Any]:
        """Arguments of the architecture."""
        return dict(self.full if scale == "paper" else self.narrow)


NETWORKS: Mapping[str, Network] = {
    "lenet": Network(
        title="LeNet",
        printed="44470",
        parameters=44_470,
        architecture="lenet",
        full={"channels": 1, "image_size": 28, "classes": 10, "batch_norm": True},
        narrow={"channels": 1, "image_size": 28, "classes": 10, "batch_norm": True},
        reading="LeNet-5 for 28x28 images with batch normalisation after both convolutions: exactly that many.",
        sample={"cpu": (1, 28, 28), "paper": (1, 28, 28)},
    ),
    "resnet18": Network(
        title="ResNet18",
        printed="11.17x10^6",
        parameters=11_173_962,
        architecture="resnet",
        full={"blocks": [2, 2, 2, 2], "width": 64, "channels": 3, "classes": 10},
        narrow={"blocks": [2, 2, 2, 2], "width": 16, "channels": 3, "classes": 10},
        reading="ResNet-18 with the stem for small images and 10 classes.",
        sample={"cpu": (3, 32, 32), "paper": (3, 32, 32)},
    ),
    "resnet34": Network(
        title="ResNet50",
        printed="21.32x10^6",
        parameters=21_328_292,
        architecture="resnet",
        full={"blocks": [3, 4, 6, 3], "width": 64, "channels": 3, "classes": 100},
        narrow={"blocks": [3, 4, 6, 3], "width": 8, "channels": 3, "classes": 100},
        reading="The paper's ResNet50 has the weights of a ResNet-34 with 100 classes; a ResNet-50 has 23,705,252.",
        sample={"cpu": (3, 32, 32), "paper": (3, 32, 32)},
    ),
    "vgg16_cbam": Network(
        title="VGG16 with CBAM",
        printed="13.83x10^7",
        parameters=138_379_696,
        architecture="vgg_cbam",
        full={"width": 64, "hidden": 4096, "pooled": 7, "reduction": 32, "classes": 1000},
        narrow={"width": 8, "hidden": 64, "pooled": 1, "reduction": 32, "classes": 10},
        reading="An inference: VGG16 with 1,000 classes (138,357,544) and attention without biases at the four places"
        " between its blocks, with a reduction of 32. The reduction of 16 that CBAM's authors use makes 138,401,456,"
        " which would be printed as 13.84; ten classes would make 13.43; five places with 32 (138,396,178), or biases,"
        " would be printed alike.",
        sample={"cpu": (3, 32, 32), "paper": (3, 224, 224)},
    ),
    "transformer_lm": Network(
        title="Transformer",
        printed="12.02x10^6",
        parameters=12_025_582,
        architecture="transformer_lm",
        full={"vocabulary": 28_782, "length": 35, "model_size": 200, "heads": 2, "hidden": 200, "layers": 2},
        narrow={"vocabulary": 5_000, "length": 35, "model_size": 64, "heads": 2, "hidden": 64, "layers": 2},
        reading="The language model of PyTorch's tutorial with the 28,782 words that it finds in WikiText-2.",
        sample={"cpu": (35,), "paper": (35,)},
        dtype="int64",
    ),
    "xlm_roberta": Network(
        title="XLM-RoBERTa",
        printed="27.80x10^8",
        parameters=278_045_186,
        architecture="roberta",
        full={
            "vocabulary": 250_002,
            "positions": 514,
            "model_size": 768,
            "heads": 12,
            "hidden": 3072,
            "layers": 12,
            "classes": 2,
        },
        narrow={
            "vocabulary": 8_000,
            "positions": 66,
            "model_size": 64,
            "heads": 4,
            "hidden": 256,
            "layers": 2,
            "classes": 2,
        },
        reading="XLM-RoBERTa base with two classes. The table says x10^8, which is a misprint for x10^7: the text says"
        " 278 million.",
        sample={"cpu": (56,), "paper": (56,)},
        dtype="int64",
    ),
}
