"""What all transforms share: which input they take, and what they refuse. The contract is `data.batch.Transform`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from unifiednn_core.base.errors import BadInput
from unifiednn_core.data.batch import Batch, Transform
from unifiednn_core.data.datasets import dtype_name
from unifiednn_core.spec.transforms import SHORT_NAMES


@dataclass(frozen=True, slots=True, kw_only=True)
class OfInput:
    """A transform of one input. It draws nothing, asks for no values and keeps targets, unless it says otherwise."""

    draws: ClassVar[bool] = False
    reads_values: ClassVar[bool] = False
    input: str | None = None

    @property
    def changes_targets(self) -> bool:
        """Whether it changes the targets: masks, if it is told to."""
        return bool(getattr(self, "masks", False))


def chosen(batch: Batch, transform: Transform) -> tuple[str, Tensor]:
    """Name and tensor of the input that a transform takes. Raises `BadInput` if there is no such input."""
    name = next(iter(batch.inputs)) if transform.input is None else transform.input
    if name not in batch.inputs:
        known = ", ".join(batch.inputs)
        raise refusal(transform, f"There is no input '{name}'.", f"Choose one of: {known}.", "input")
    return name, batch.inputs[name]


def images(batch: Batch, transform: Transform, *, real: bool = False) -> tuple[str, Tensor]:
    """Name and tensor [samples, channels, height, width] of the input. Raises `BadInput` for another shape.

    With `real`, integers are refused, too.
    """
    name, tensor = chosen(batch, transform)
    if tensor.dim() != 4:
        message = f"It takes images [channels, height, width], but a sample of '{name}' is {list(tensor.shape[1:])}."
        raise refusal(transform, message, "Leave this transform out, or choose another input.")
    if real and not tensor.is_floating_point():
        remedy = "Give the sub-model a scale, such as 1/255 = 0.00392156862745098 for images of bytes."
        raise refusal(transform, f"It takes real numbers, but '{name}' is {dtype_name(tensor.dtype)}.", remedy)
    return name, tensor


def token_ids(batch: Batch, transform: Transform) -> tuple[str, Tensor]:
    """Name and tensor [samples, length] of the input. Raises `BadInput` for another shape or real numbers."""
    name, tensor = chosen(batch, transform)
    if tensor.dim() != 2 or tensor.is_floating_point():
        message = (
            f"It takes ids [length], but a sample of '{name}' is {dtype_name(tensor.dtype)} {list(tensor.shape[1:])}."
        )
        raise refusal(transform, message, "Leave this transform out, or choose another input.")
    return name, tensor


def masks(batch: Batch, transform: Transform, tensor: Tensor) -> Tensor:
    """Targets [samples, height, width] of images `tensor`. Raises `BadInput` for other targets."""
    wanted = (tensor.shape[0], *tensor.shape[2:])
    if batch.targets is None or batch.targets.shape != wanted:
        found = "there are none" if batch.targets is None else f"those of a sample are {list(batch.targets.shape[1:])}"
        message = f"It takes targets {list(wanted[1:])}, one for each pixel, but {found}."
        raise refusal(transform, message, "Leave out masks, or give masks as targets.", "masks")
    return batch.targets


def changed(batch: Batch, name: str, tensor: Tensor) -> Batch:
    """The batch with another tensor for one input."""
    return replace(batch, inputs={**batch.inputs, name: tensor})


def for_each_sample(values: Tensor, rank: int) -> Tensor:
    """Shape [samples] values so that they broadcast with a tensor of this rank."""
    return values.view(-1, *[1] * (rank - 1))


def constants(values: Sequence[float], like: Tensor) -> Tensor:
    """Tensor of these numbers in type and place of another; made on the device, for a graph cannot record a copy."""
    return torch.stack([like.new_full((), value) for value in values])


def window(images: Tensor, tops: Tensor, lefts: Tensor, size: tuple[int, int]) -> Tensor:
    """Cut [samples, channels, *size] out of images, for each sample at its own place."""
    (samples, channels, _, width), (rows, columns) = images.shape, size
    device = images.device
    down = tops[:, None] + torch.arange(rows, device=device)
    across = lefts[:, None] + torch.arange(columns, device=device)
    places = (down[:, :, None] * width + across[:, None, :]).view(samples, 1, -1).expand(-1, channels, -1)
    return images.flatten(2).gather(2, places).view(samples, channels, rows, columns)


def refusal(transform: Transform, message: str, remedy: str, argument: str = "") -> BadInput:
    """The exception for a batch that a transform cannot take."""
    kind = SHORT_NAMES.get(type(transform).__name__, type(transform).__name__)
    field = f"transforms.{kind}.{argument}" if argument else f"transforms.{kind}"
    return BadInput.of("Transform", field, message, remedy)
