"""What a network is like is found out at intake, by one batch, and not at the third epoch."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from unifiednn_core.base.errors import BadInput
from unifiednn_core.data.datasets import Dataset
from unifiednn_core.formats.module import PickledModule
from unifiednn_core.preflight.dry_run import dry_run
from unifiednn_core.preflight.trial import Trial
from unifiednn_core.spec.run import SubModelSpec


def tried(
    module: nn.Module, inputs: Tensor, folder: Path, tests: Tensor | None = None, **hyperparameters: Any
) -> nn.Module:
    torch.save(module, folder / "m.pt")
    hyper = {"batch_size": 8} | hyperparameters
    spec = SubModelSpec.model_validate({"name": "one", "model": "m.pt", "train_data": "d", "hyperparameters": hyper})
    data = dataset(inputs)
    test = data if tests is None else dataset(tests)
    return dry_run(Trial(spec, PickledModule().read(folder / "m.pt", None), data, test)).module


def dataset(inputs: Tensor) -> Dataset:
    return Dataset.of(inputs=inputs, targets=torch.arange(len(inputs)) % 3)


def images(samples: int = 20) -> Tensor:
    return torch.rand(samples, 1, 4, 4, generator=torch.Generator().manual_seed(0))


def classifier(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Flatten(), *layers, nn.Linear(16, 3))


TOKENS = torch.arange(40).view(20, 2) % 9
REFUSED: dict[str, tuple[nn.Module, Tensor, str, str]] = {
    "several outputs": (nn.LSTM(4, 3, batch_first=True), images().squeeze(1), "model", "several outputs"),
    "several inputs": (nn.MultiheadAttention(4, 2, batch_first=True), images().squeeze(1), "model", "several inputs"),
    "fixed batch": (
        nn.Sequential(nn.Flatten(0), nn.Unflatten(0, (8, 16)), nn.Linear(16, 3)),
        images(),
        "train_data",
        r"\[4, 1, 4, 4\]",
    ),
    "batch melted": (
        nn.Sequential(nn.Flatten(0), nn.Unflatten(0, (-1, 8)), nn.Linear(8, 3)),
        images(),
        "model",
        "one row",
    ),
    "batch of one": (classifier(nn.BatchNorm1d(16)), images(17), "hyperparameters.batch_size", "one sample"),
    "no weights": (nn.Sequential(nn.Flatten(), nn.ReLU()), images(), "model", "no trainable weight"),
    "frozen weights": (classifier().requires_grad_(False), images(), "model", "no trainable weight"),
    "foreign token": (nn.Sequential(nn.Embedding(8, 4), nn.Flatten(), nn.Linear(8, 3)), TOKENS, "train_data", "take"),
    "numbers for tokens": (nn.Sequential(nn.Embedding(9, 4)), images(), "train_data", "does not take"),
    "bytes for numbers": (classifier(), (images() * 9).to(torch.uint8), "scale", "uint8"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_trained_is_refused_with_its_place_and_reason(name: str, tmp_path: Path) -> None:
    module, inputs, field, words = REFUSED[name]
    with pytest.raises(BadInput, match=words) as caught:
        tried(module, inputs, tmp_path)
    assert caught.value.findings[0].field == f"submodels.one.{field}"


def test_tokens_partial_batches_and_parts_without_weights_are_taken(tmp_path: Path) -> None:
    text = nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(8, 3))
    assert tried(text, TOKENS, tmp_path).training
    without_weights = classifier(nn.ReLU(), nn.Sequential(nn.Identity(), nn.Dropout(0.1)))
    assert tried(without_weights, images(17), tmp_path).training


def test_a_single_sample_is_taken_where_nothing_is_normalised_over_the_batch(tmp_path: Path) -> None:
    assert tried(classifier(nn.LayerNorm(16)), images(1), tmp_path, batch_size=1).training


def test_tied_weights_take_one_step_together(tmp_path: Path) -> None:
    tied = nn.Linear(16, 16)
    module = tried(classifier(tied, nn.ReLU(), tied), images(), tmp_path)
    assert module.get_parameter("1.weight") is module.get_parameter("3.weight")
    assert not torch.equal(module.get_parameter("1.weight"), tied.weight)


def test_the_last_batch_of_a_test_is_tried_too(tmp_path: Path) -> None:
    fixed = nn.Sequential(nn.Flatten(0), nn.Unflatten(0, (8, 16)), nn.Linear(16, 3))
    assert tried(fixed, images(16), tmp_path).training
    with pytest.raises(BadInput, match=r"\[3, 1, 4, 4\]") as caught:
        tried(fixed, images(16), tmp_path, tests=images(19))
    assert caught.value.findings[0].field == "submodels.one.test_data"


def test_a_criterion_is_tried_on_the_last_batch_too(tmp_path: Path) -> None:
    """A weight for each of 8 samples fits every batch but the last."""
    score = nn.Sequential(nn.Flatten(), nn.Linear(16, 1), nn.Flatten(0))
    args = {"criterion": "bce_with_logits", "criterion_args": {"weight": [1] * 8}}
    torch.save(score, tmp_path / "m.pt")
    spec = {"name": "one", "model": "m", "train_data": "d", "hyperparameters": {"batch_size": 8, **args}}
    data = Dataset.of(inputs=images(), targets=torch.ones(20))
    trial = Trial(SubModelSpec.model_validate(spec), PickledModule().read(tmp_path / "m.pt", None), data, None)
    with pytest.raises(BadInput, match="size of tensor") as caught:
        dry_run(trial)
    assert caught.value.findings[0].field == "submodels.one.hyperparameters.criterion_args"


@pytest.mark.parametrize(
    ("samples", "hyperparameters", "remedy"),
    [
        (20, {"batch_size": 1}, "larger batch"),
        (1, {}, "more samples"),
        (17, {}, "drop_last"),
        (13, {"batch_split": 3}, "fewer parts"),
    ],
)
def test_where_a_batch_of_one_comes_from_is_told(
    samples: int, hyperparameters: dict[str, Any], remedy: str, tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match="one sample") as caught:
        tried(classifier(nn.BatchNorm1d(16)), images(samples), tmp_path, **hyperparameters)
    assert remedy in caught.value.findings[0].remedy


def test_parts_that_are_large_enough_are_taken(tmp_path: Path) -> None:
    assert tried(classifier(nn.BatchNorm1d(16)), images(20), tmp_path, batch_split=3).training
