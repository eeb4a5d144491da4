"""Every transform keeps the contract, and the kit notices each broken promise."""

import random
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
import torch
from torch import Generator, Tensor

from tests.unit.data.transforms.kit import CASES, IDS, images, made
from unifiednn_core.data.batch import Batch, Mix, Transform
from unifiednn_core.data.transforms.table import TRANSFORMS
from unifiednn_core.testing.transforms import check_transform


@pytest.mark.parametrize(("name", "arguments", "batch"), CASES, ids=IDS)
def test_a_transform_keeps_the_contract(name: str, arguments: dict[str, object], batch: Batch) -> None:
    check_transform(made(name, **arguments), batch)


def test_every_transform_is_checked() -> None:
    assert {name for name, _, _ in CASES} == TRANSFORMS.keys()


@dataclass(frozen=True)
class _Good:
    """Adds noise; each broken transform below differs from it in one thing."""

    training_only: ClassVar[bool] = True
    draws: ClassVar[bool] = True
    reads_values: ClassVar[bool] = False
    changes_targets: ClassVar[bool] = False
    input: str | None = "image"
    by: float = 0.5

    def __call__(self, batch: Batch, generator: Generator | None) -> Batch:
        return self.add(batch, self.noise(batch.inputs["image"], generator))

    def noise(self, x: Tensor, generator: Generator | None) -> Tensor:
        return self.by * torch.rand(x.shape, generator=generator, device=x.device)

    def add(self, batch: Batch, noise: Tensor) -> Batch:
        return replace(batch, inputs={**batch.inputs, "image": batch.inputs["image"] + noise})


@dataclass
class _Mutable:
    training_only: ClassVar[bool] = True
    draws: ClassVar[bool] = True
    reads_values: ClassVar[bool] = False
    changes_targets: ClassVar[bool] = False
    input: str | None = None

    def __call__(self, batch: Batch, generator: Generator | None) -> Batch:
        return _Good()(batch, generator)


class _Silent(_Good):
    def __repr__(self) -> str:
        return "noise"


class _FromElsewhere(_Good):
    def noise(self, x: Tensor, generator: Generator | None) -> Tensor:
        return torch.rand(x.shape, device=x.device)


class _FromPython(_Good):
    def noise(self, x: Tensor, generator: Generator | None) -> Tensor:
        return super().noise(x, generator) + random.random()


class _Secret(_Good):
    draws = False


class _Remembering(_Good):
    calls: ClassVar[list[int]] = []

    def noise(self, x: Tensor, generator: Generator | None) -> Tensor:
        self.calls.append(1)
        return super().noise(x, generator) + len(self.calls)


class _OtherWithout(_Good):
    def noise(self, x: Tensor, generator: Generator | None) -> Tensor:
        return super().noise(x, generator) * (2 if generator is None else 1)


class _ByValue(_Good):
    def noise(self, x: Tensor, generator: Generator | None) -> Tensor:
        times = 2 if x[0, 0, 0, 0] > x[-1, 0, 0, 0] else 1
        return torch.stack([super(_ByValue, self).noise(x, generator) for _ in range(times)])[0]


class _Shorter(_Good):
    def add(self, batch: Batch, noise: Tensor) -> Batch:
        return replace(batch, inputs={**batch.inputs, "image": batch.inputs["image"][1:]})


class _Wider(_Good):
    def add(self, batch: Batch, noise: Tensor) -> Batch:
        return replace(batch, inputs={**batch.inputs, "image": batch.inputs["image"].double() + noise})


class _Elsewhere(_Good):
    def add(self, batch: Batch, noise: Tensor) -> Batch:
        return replace(batch, inputs={name: one * 2 for name, one in batch.inputs.items()})


class _Writing(_Good):
    def add(self, batch: Batch, noise: Tensor) -> Batch:
        batch.inputs["image"].add_(0)
        return super().add(batch, noise)


class _Replacing(_Good):
    def add(self, batch: Batch, noise: Tensor) -> Batch:
        batch.inputs["image"] = batch.inputs["image"].clone()
        return super().add(batch, noise)


class _ByLayout(_Good):
    def add(self, batch: Batch, noise: Tensor) -> Batch:
        return super().add(batch, noise * (1 if batch.inputs["image"].is_contiguous() else 2))


class _FixedInTraining(_Good):
    draws = False

    def noise(self, x: Tensor, generator: Generator | None) -> Tensor:
        return torch.ones_like(x)


class _NoisyInEvaluation(_Good):
    training_only = False


class _OtherTargets(_Good):
    def add(self, batch: Batch, noise: Tensor) -> Batch:
        assert batch.targets is not None
        return replace(super().add(batch, noise), targets=batch.targets + 1)


class _MixingInEvaluation(_FixedInTraining):
    training_only = False
    changes_targets = True

    def add(self, batch: Batch, noise: Tensor) -> Batch:
        assert batch.targets is not None
        return replace(super().add(batch, noise), mix=Mix(batch.targets, noise[0, 0, 0, 0]))


class _Asking(_Good):
    def add(self, batch: Batch, noise: Tensor) -> Batch:
        return super().add(batch, noise * 2 if bool(noise.sum() > 3) else noise)


class _OnTheHost(_Good):
    def noise(self, x: Tensor, generator: Generator | None) -> Tensor:
        return super().noise(x, generator) + torch.tensor([1.0, 2.0, 3.0]).view(3, 1, 1)


class _Copied(_Good):
    def noise(self, x: Tensor, generator: Generator | None) -> Tensor:
        return super().noise(x, generator) + torch.tensor([1.0, 2.0, 3.0], device=x.device).view(3, 1, 1)


class _Picking(_Good):
    def add(self, batch: Batch, noise: Tensor) -> Batch:
        return super().add(batch, noise + noise[noise > 0.2].mean())


class _AskingForNothing(_Good):
    reads_values = True


def test_the_kit_accepts_a_transform_that_is_not_ours() -> None:
    check_transform(_Good(), images())


@pytest.mark.parametrize(
    ("broken", "promise"),
    [
        (_Mutable(), "a frozen dataclass"),
        (_Silent(), "repr names every argument"),
        (_FromElsewhere(), "draws from no other"),
        (_FromPython(), "draws from no other"),
        (_Secret(), "draws says whether it draws"),
        (_Remembering(), "equal states give equal results"),
        (_OtherWithout(), "default generator gives the bits"),
        (_ByValue(), "draws as much for any values"),
        (_Shorter(), "number of samples"),
        (_Wider(), "type of numbers"),
        (_Elsewhere(), "only its own input"),
        (_OtherTargets(), "changes_targets says"),
        (_Writing(), "writes into nothing"),
        (_Replacing(), "leaves the dict as it is"),
        (_ByLayout(), "layout in memory"),
        (_FixedInTraining(), "a transform for training alone draws"),
        (_NoisyInEvaluation(), "a transform for evaluation draws nothing"),
        (_MixingInEvaluation(), "evaluation does not mix"),
        (_Asking(), "reads no value"),
        (_OnTheHost(), "on the device of the batch"),
        (_Copied(), "on the device of the batch"),
        (_Picking(), "reads no value"),
        (_AskingForNothing(), "reads_values says"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else "",
)
def test_the_kit_refuses_a_transform_that_breaks_a_promise(broken: Transform, promise: str) -> None:
    with pytest.raises(AssertionError, match=promise):
        check_transform(broken, images())
