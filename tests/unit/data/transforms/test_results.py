"""Every transform gives what a slow loop gives from the draws that the table names, sample by sample."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.unit.data.transforms import reference
from tests.unit.data.transforms.kit import CASES, IDS, images, made, seeded, texts
from unifiednn_core.data.batch import Batch
from unifiednn_core.data.transforms.table import build
from unifiednn_core.spec.transforms import TransformSpec

ROUNDED = {"color_jitter": 1e-5, "resize": 1e-5}
"""Largest difference; the references of these compute with other means. All others give equal bits."""


def close(first: Tensor | None, second: Tensor | None, most: float) -> bool:
    if first is None or second is None:
        return first is second
    same = first.dtype == second.dtype and first.shape == second.shape
    return same and (torch.equal(first, second) or (most > 0 and bool((first - second).abs().max() <= most)))


@pytest.mark.parametrize(("name", "arguments", "batch"), CASES, ids=IDS)
@pytest.mark.parametrize("seed", range(3))
def test_a_transform_gives_what_a_loop_over_samples_gives(
    name: str, arguments: dict[str, Any], batch: Batch, seed: int
) -> None:
    own, other = seeded(seed), seeded(seed)
    result, expected = made(name, **arguments)(batch, own), reference.transformed(name, arguments, batch, other)
    most = ROUNDED.get(name, 0.0) if arguments.get("interpolation", "bilinear") == "bilinear" else 0.0
    for key, tensor in result.inputs.items():
        assert close(tensor, expected.inputs[key], most), key
    assert close(result.targets, expected.targets, 0.0)
    assert (result.mix is None) == (expected.mix is None)
    if result.mix is not None and expected.mix is not None:
        assert close(result.mix.targets, expected.mix.targets, 0.0) and torch.equal(
            result.mix.share, expected.mix.share
        )
    assert torch.equal(own.get_state(), other.get_state())  # the table names all draws


@pytest.mark.parametrize("name", ["random_crop", "horizontal_flip", "random_erasing", "color_jitter", "token_masking"])
def test_samples_differ_in_their_draws(name: str) -> None:
    """A batch of one sample repeated does not stay so."""
    arguments: dict[str, dict[str, object]] = {
        "random_crop": {"padding": 3},
        "color_jitter": {"brightness": 0.5, "hue": 0.2},
        "token_masking": {"mask": 1, "random": 0, "p": 0.5},
    }
    batch = texts() if name == "token_masking" else images()
    key = next(iter(batch.inputs))
    alike = replace(batch, inputs={key: batch.inputs[key][1:2].repeat(20, *[1] * (batch.inputs[key].dim() - 1))})
    result = made(name, **arguments.get(name, {}))(replace(alike, targets=None), seeded())
    assert len(result.inputs[key].flatten(1).unique(dim=0)) > 1


def test_bicubic_is_that_of_pillow() -> None:
    batch, arguments = images(), {"size": [5, 9], "interpolation": "bicubic"}
    result = made("resize", **arguments)(batch, None)
    expected = reference.transformed("resize", arguments, batch, seeded())
    assert close(result.inputs["image"], expected.inputs["image"], 1e-5)


def test_nearest_takes_the_pixels_that_torch_takes() -> None:
    for old in (1, 3, 7, 10, 224):
        mask = torch.arange(old * 2).view(1, old, 2)
        batch = Batch({"x": torch.zeros(1, 1, old, 2)}, mask)
        for new in (1, 5, 9, 10, 49, 225):
            result = made("resize", size=[new, 2], masks=True)(batch, None).targets
            expected = torch.nn.functional.interpolate(mask[None].double(), [new, 2], mode="nearest")
            assert result is not None and torch.equal(result.double(), expected[0])


@pytest.mark.parametrize("alpha", [0.2, 1.0, 8])
def test_the_share_of_mixup_is_what_torch_draws_from_beta(alpha: float) -> None:
    mix = made("mixup", alpha=alpha)(images(), seeded(5)).mix
    state = torch.get_rng_state()
    torch.manual_seed(5)
    expected = torch.distributions.Beta(float(alpha), float(alpha)).sample()
    torch.set_rng_state(state)
    assert mix is not None and torch.equal(mix.share, expected)


def test_the_recipe_of_cifar_in_order() -> None:
    """Crop and flip keep black borders black; normalize comes last, as in a pipeline of torchvision."""
    specs = [
        {"name": "random_crop", "padding": 4},
        {"name": "horizontal_flip"},
        {"name": "normalize", "mean": [0.4914, 0.4822, 0.4465], "std": [0.2470, 0.2435, 0.2616]},
    ]
    transforms = build(map(TransformSpec.model_validate, specs))
    batch = Batch({"inputs": torch.rand(16, 3, 32, 32, generator=seeded())}, torch.arange(16))
    for transform in transforms:
        batch = transform(batch, seeded(2))
    black = (torch.zeros(3) - torch.tensor(specs[2]["mean"])) / torch.tensor(specs[2]["std"])
    assert (batch.inputs["inputs"] == black.view(3, 1, 1)).all(1).any()
    assert [transform.training_only for transform in transforms] == [True, True, False]
