"""A batch that a transform cannot take is a finding that names the transform and the remedy."""

import pytest
import torch

from tests.unit.data.transforms.kit import images, made, masked_images, texts
from unifiednn_core.base.errors import BadInput
from unifiednn_core.data.batch import Batch

BYTES = Batch({"image": torch.zeros(2, 3, 8, 6, dtype=torch.uint8)}, torch.zeros(2))
ROWS = Batch({"inputs": torch.zeros(2, 7)}, torch.zeros(2))


@pytest.mark.parametrize(
    ("name", "arguments", "batch", "words"),
    [
        ("random_crop", {"input": "picture"}, images(), "no input 'picture'. .*one of: image, more"),
        ("random_crop", {}, ROWS, r"images \[channels, height, width\], but a sample of 'inputs' is \[7\]"),
        ("random_crop", {"size": [9, 4]}, images(), r"cuts \[9, 4\] out of 'image', which is \[8, 6\]"),
        ("random_crop", {"masks": True}, images(), r"targets \[8, 6\], one for each pixel"),
        ("horizontal_flip", {"masks": True}, Batch(images().inputs), "there are none"),
        ("normalize", {"mean": [1, 2], "std": [1, 1]}, images(), "3 channels, but mean has 2"),
        ("normalize", {"mean": [1], "std": [1]}, BYTES, "scale"),
        ("resize", {"size": [2, 2]}, BYTES, "uint8.*\n?.*scale"),
        ("color_jitter", {"hue": 0.1}, BYTES, "uint8"),
        ("color_jitter", {"hue": 0.1}, images(2), "1 or 3 channels"),
        ("mixup", {}, BYTES, "integers"),
        ("mixup", {}, Batch(images().inputs), "there are none"),
        ("token_masking", {"mask": 1, "random": 0}, images(), "ids"),
        ("token_masking", {"mask": 300, "random": 0}, Batch({"ids": BYTES.inputs["image"][:, 0, 0]}), "the id 300"),
        ("trim", {}, ROWS, "ids"),
    ],
)
def test_a_batch_that_does_not_fit_is_refused(
    name: str, arguments: dict[str, object], batch: Batch, words: str
) -> None:
    with pytest.raises(BadInput, match=words) as caught:
        made(name, **arguments)(batch, None)
    [finding] = caught.value.findings
    assert finding.field.startswith(f"transforms.{name}") and finding.remedy.endswith(".")


def test_geometry_and_ids_take_integers() -> None:
    for name in ("random_crop", "horizontal_flip", "random_erasing"):
        assert made(name)(BYTES, None).inputs["image"].dtype is torch.uint8
    assert made("resize", size=[4, 4], interpolation="nearest")(BYTES, None).inputs["image"].shape[-1] == 4
    assert made("resize", size=[4, 4], masks=True)(masked_images(), None).targets is not None
    assert made("trim")(texts(), None).inputs["ids"].shape == (5, 9)
