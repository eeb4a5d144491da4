"""What one step means, from samples of a data set to a loss: prepare, forward, loss.

Engine, check, memory measurement and plain baseline use the very same `Step`; each has its own loop around it. The
stages, in the order of the exactness recipe:

1. source: a copy of the samples (`Dataset.batch`);
2. `prepare`: scale, mean and std; then the targets, where they follow from the inputs; then the transforms;
3. `forward`: the network, with its inputs in its own order;
4. `loss`: the criterion on one output, plus those of auxiliary outputs times their weights;
5. backward and update, which belong to the loop.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import torch
from torch import Generator, Tensor, nn

from unifiednn_core.data.batch import Batch, Transform

TARGETS = "targets"
"""Name of a network's input that gets the targets, for a loss inside of the network."""


class Scaling(NamedTuple):
    """Makes floating point inputs: (inputs * scale - mean) / std, in float32."""

    scale: float | None = None
    mean: float | None = None
    std: float | None = None

    def __call__(self, inputs: Tensor) -> Tensor:
        """Scale a tensor; without any number it stays the same object."""
        if self == UNSCALED:
            return inputs
        inputs = inputs.to(torch.float32)
        if self.scale is not None:
            inputs = inputs * self.scale
        if self.mean is not None:
            inputs = inputs - self.mean
        return inputs if self.std is None else inputs / self.std


UNSCALED = Scaling()


@dataclass(frozen=True, slots=True)
class Step:
    """A training step of one network, as plain values and pure functions."""

    inputs: tuple[str, ...] = ("inputs",)
    """For each input of the network, in its order, the input of the data set that it gets, or `targets`."""
    scaling: Scaling = UNSCALED
    """For every input; of several, those with class numbers or ids (int32, int64) stay as they are."""
    transforms: "tuple[Transform, ...]" = ()
    targets: Literal["stored", "inputs", "next"] = "stored"
    """Where targets come from: the data set; the scaled inputs; or the ids of the inputs, each one place further."""
    output: int = 0
    """Place of the output that the criterion gets."""
    auxiliary: tuple[tuple[int, float], ...] = ()
    """Places and weights of further outputs whose losses are added in training."""
    classes: Literal["second", "last"] = "second"
    """Dimension of the outputs that holds the scores of classes; criteria of torch expect the second."""

    @property
    def first(self) -> str:
        """The first input that is not the targets."""
        return next(name for name in self.inputs if name != TARGETS)

    @property
    def plain(self) -> bool:
        """Whether a step is `criterion(module(inputs), targets)` on one scaled input."""
        return self == Step(inputs=self.inputs, scaling=self.scaling) and len(self.inputs) == 1

    @property
    def draws(self) -> bool:
        """Whether a transform draws random numbers."""
        return any(transform.draws for transform in self.transforms)

    @property
    def moves_targets(self) -> bool:
        """Whether transforms may change targets, so that the labels of a batch are known only afterwards."""
        return any(transform.changes_targets for transform in self.transforms)

    def targets_of(self, inputs: Mapping[str, Tensor], stored: Tensor | None) -> Tensor | None:
        """Targets of samples whose inputs are scaled; a view of them, except for another type."""
        if self.targets == "stored":
            return stored
        first = inputs[self.first]
        if self.targets == "next":
            first = first[:, 1:]
        return first if first.is_floating_point() else first.to(torch.int64)

    def prepare(self, batch: Batch, generator: Generator | None = None, *, training: bool = True) -> Batch:
        """Make what the network and the criterion get, from a copy of samples; draws only in training."""
        if len(batch.inputs) > 1:  # those of the network alone, in its order
            batch = replace(batch, inputs={name: batch.inputs[name] for name in self.inputs if name != TARGETS})
        if self.scaling != UNSCALED or self.targets != "stored":
            inputs = {name: self._scaled(one, len(batch.inputs)) for name, one in batch.inputs.items()}
            targets = self.targets_of(inputs, batch.targets)
            if self.targets == "next":
                length = inputs[self.first].shape[1]
                inputs = {
                    name: one[:, :-1].contiguous() if one.dim() > 1 and one.shape[1] == length else one
                    for name, one in inputs.items()
                }
            if self.targets != "stored" and targets is not None:  # a network may write into its inputs
                targets = targets.clone(memory_format=torch.contiguous_format)
            batch = replace(batch, inputs=inputs, targets=targets)
        for transform in self.transforms:
            if training or not transform.training_only:
                batch = transform(batch, generator)
        return batch

    def forward(self, module: nn.Module, batch: Batch) -> tuple[Tensor, ...]:
        """Run the network; returns all its outputs."""
        outputs = module(*self.given(batch))
        return outputs if isinstance(outputs, tuple) else (outputs,)

    def given(self, batch: Batch) -> list[Tensor | None]:
        """What the network gets, in the order of its inputs."""
        return [batch.targets if name == TARGETS else batch.inputs[name] for name in self.inputs]

    def scores(self, outputs: Sequence[Tensor]) -> Tensor:
        """The output that the criterion gets, with class scores in the second dimension."""
        return self._arranged(outputs[self.output])

    def auxiliary_scores(self, outputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The auxiliary outputs, arranged likewise."""
        return tuple(self._arranged(outputs[place]) for place, _ in self.auxiliary)

    def loss(self, criterion: nn.Module, outputs: Sequence[Tensor], batch: Batch, *, training: bool = True) -> Tensor:
        """Mean loss of a batch, a scalar."""
        loss = _mixed(criterion, self.scores(outputs), batch)
        if training:
            for place, weight in self.auxiliary:
                loss = loss + weight * _mixed(criterion, self._arranged(outputs[place]), batch)
        return loss

    def _scaled(self, one: Tensor, count: int) -> Tensor:
        kept = count > 1 and one.dtype in (torch.int32, torch.int64, torch.bool)
        return one if kept else self.scaling(one)

    def _arranged(self, output: Tensor) -> Tensor:
        return output.movedim(-1, 1) if self.classes == "last" and output.dim() > 2 else output


def _mixed(criterion: nn.Module, scores: Tensor, batch: Batch) -> Tensor:
    loss: Tensor = criterion(scores, batch.targets)
    if batch.mix is None:
        return loss
    other: Tensor = criterion(scores, batch.mix.targets)
    return batch.mix.share * loss + (1 - batch.mix.share) * other


class OutputIsLoss(nn.Module):
    """The criterion `none`: the output of the network is the loss, of the batch or of each sample."""

    def forward(self, outputs: Tensor, _: Tensor | None) -> Tensor:
        """Mean of the outputs."""
        return outputs.mean()
