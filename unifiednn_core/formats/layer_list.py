"""Makes a network from a list of layers. It is delivered beside the weights, so it needs torch alone.

An entry is `["Conv2d", {"in_channels": 1, "out_channels": 8, "kernel_size": 3}]`, a class of torch.nn with its
arguments, or `["Residual", [...]]`, a block of this file around other entries; `["Residual", [...], [...]]` has entries
on its shortcut too.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn


class Residual(nn.Sequential):
    """Adds the input, or the output of a shortcut, to the output of the layers inside."""

    def __init__(self, *layers: nn.Module, shortcut: nn.Module | None = None):
        super().__init__(*layers)
        if shortcut is not None:
            self.shortcut = shortcut

    def forward(self, inputs: Tensor) -> Tensor:
        """Map a batch to one of the shape that both paths return."""
        outputs, beside = inputs, inputs
        for name, layer in self.named_children():
            if name == "shortcut":
                beside = layer(inputs)
            else:
                outputs = layer(outputs)
        return beside + outputs


class Skip(nn.Sequential):
    """Concatenates its input and the output of the layers inside, by channel (U-Net)."""

    def forward(self, inputs: Tensor) -> Tensor:
        """Map [batch, a, ...] to [batch, a + b, ...] if the layers inside return b channels."""
        outputs: Tensor = super().forward(inputs)  # type: ignore[no-untyped-call]
        return torch.cat((inputs, outputs), 1)


class LastStep(nn.Module):
    """The last step of a sequence, which may be the output of LSTM, GRU or RNN with batch_first."""

    def forward(self, outputs: Tensor | tuple[Tensor, object]) -> Tensor:
        """Map [batch, steps, size] to [batch, size]."""
        sequence = outputs if isinstance(outputs, Tensor) else outputs[0]
        return sequence[:, -1]


class AllSteps(nn.Module):
    """All steps of the output of LSTM, GRU or RNN, without the last states."""

    def forward(self, outputs: tuple[Tensor, object]) -> Tensor:
        """Take the first of the two."""
        return outputs[0]


class Permute(nn.Module):
    """Reorders the dimensions; the batch, 0, stays first."""

    def __init__(self, dims: list[int]):
        super().__init__()
        self.dims = tuple(dims)

    def forward(self, inputs: Tensor) -> Tensor:
        """Reorder the dimensions."""
        return inputs.permute(self.dims)


class Mean(nn.Module):
    """The mean over one dimension."""

    def __init__(self, dim: int):
        super().__init__()
        self.dim = dim

    def forward(self, inputs: Tensor) -> Tensor:
        """Average."""
        return inputs.mean(self.dim)


class Position(nn.Module):
    """Adds a learned vector to each place of a sequence [batch, length, size]."""

    def __init__(self, length: int, size: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(length, size).normal_(std=0.02))

    def forward(self, inputs: Tensor) -> Tensor:
        """Add the vectors."""
        return inputs + self.weight


NESTED = {"Residual": Residual, "Skip": Skip, "Sequential": nn.Sequential}
BLOCKS = {"LastStep": LastStep, "AllSteps": AllSteps, "Permute": Permute, "Mean": Mean, "Position": Position}


def build(layers: list) -> nn.Sequential:  # type: ignore[type-arg]
    """Make the network; its initial weights are drawn from torch's default generator."""
    return nn.Sequential(*(_layer(name, *rest) for name, *rest in layers))


def _layer(name: str, inside: object = None, shortcut: object = None) -> nn.Module:
    if isinstance(shortcut, list):
        return Residual(*build(inside if isinstance(inside, list) else []), shortcut=build(shortcut))
    if name in NESTED:
        block: nn.Module = NESTED[name](*build(inside if isinstance(inside, list) else []))
        return block
    kind: Callable[..., nn.Module] = BLOCKS[name] if name in BLOCKS else getattr(nn, name)
    return kind(**(inside if isinstance(inside, dict) else {}))
