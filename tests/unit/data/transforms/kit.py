"""Batches, transforms and their specs for the tests of transforms."""

import torch
from torch import Generator

from unifiednn_core.data.batch import Batch, Transform
from unifiednn_core.data.transforms.table import build
from unifiednn_core.spec.transforms import TransformSpec

SAMPLES, HEIGHT, WIDTH = 5, 8, 6


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def made(name: str, **arguments: object) -> Transform:
    [transform] = build([TransformSpec.model_validate({"name": name, **arguments})])
    return transform


def images(channels: int = 3, samples: int = SAMPLES, *, targets: torch.Tensor | None = None) -> Batch:
    x = torch.rand(samples, channels, HEIGHT, WIDTH, generator=seeded(1))
    labels = torch.arange(samples) if targets is None else targets
    return Batch({"image": x, "more": torch.arange(samples * 2.0).view(samples, 2)}, labels)


def masked_images() -> Batch:
    return images(targets=torch.randint(9, (SAMPLES, HEIGHT, WIDTH), generator=seeded(2)))


def texts() -> Batch:
    """Ids from 1 on, padded with 0; no sample is as long as the tensor."""
    ids = torch.randint(1, 50, (SAMPLES, 12), generator=seeded(3))
    ids[torch.arange(12) >= torch.tensor([[3], [9], [5], [1], [2]])] = 0
    return Batch({"ids": ids, "seen": (ids != 0).long()}, ids.clone())


CASES: list[tuple[str, dict[str, object], Batch]] = [
    ("normalize", {"mean": [0.4, 0.5, 0.6], "std": [0.2, 0.3, 0.4]}, images()),
    ("normalize", {"mean": [1], "std": [2], "input": "more"}, images()),
    ("resize", {"size": [5, 9]}, images()),
    ("resize", {"size": [16, 3], "interpolation": "nearest-exact", "masks": True, "input": "image"}, masked_images()),
    ("random_crop", {"padding": 2}, images()),
    ("random_crop", {"size": [3, 4], "padding": 1, "masks": True, "mask_fill": -100}, masked_images()),
    ("horizontal_flip", {}, images()),
    ("horizontal_flip", {"masks": True}, masked_images()),
    ("random_erasing", {"value": 0.5}, images()),
    ("random_erasing", {"p": 1, "scale": [0.5, 1]}, images(1)),
    ("color_jitter", {"brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1}, images()),
    ("color_jitter", {"brightness": 0.4, "contrast": 2, "saturation": 0.4, "hue": 0.1}, images(1)),
    ("mixup", {"alpha": 0.2}, images()),
    ("token_masking", {"mask": 7, "p": 0.5, "vocabulary": 50, "special": [0, 3]}, texts()),
    ("token_masking", {"mask": 7, "random": 0, "predict": False}, texts()),
    ("trim", {}, texts()),
    ("trim", {"others": True, "targets": True}, texts()),
]
IDS = [f"{name}-{number}" for number, (name, _, _) in enumerate(CASES)]
