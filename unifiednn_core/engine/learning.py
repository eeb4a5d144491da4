"""Learners: forward and backward of a step, between taking its batches and its update.

`EagerLearner` does what the recipe says, one part after the other. Others may take its place if they leave the same
bits in the gradients, the buffers and the default generators.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from unifiednn_core.base.errors import NoBatchedForm
from unifiednn_core.data.batch import Batch
from unifiednn_core.data.datasets import DataSource
from unifiednn_core.engine.computing import EXACT, Computing
from unifiednn_core.engine.randomness import Randomness
from unifiednn_core.engine.resident_data import Lease
from unifiednn_core.engine.scorer import Scorer
from unifiednn_core.engine.step import Step
from unifiednn_core.spec.run import Hyperparameters
from unifiednn_core.techniques.build import NONE, Techniques


class Learned(NamedTuple):
    """What a step has learned, besides the gradients that it leaves in `.grad`."""

    loss: Tensor
    """Mean loss, a scalar on the device."""
    correct: Tensor | None
    """Right answers, a scalar on the device; None if there are no classes."""
    labels: int | Tensor | None = None
    """Labels that count, where transforms change them; None if they are those of the data set."""


class Learner(Protocol):
    """Does forward and backward for one sub-model."""

    def __call__(self, batches: Sequence[Tensor]) -> Learned:
        """Replace the gradients by those of a step over these batches (indices of samples, int64)."""


class RecordableLearner(Learner, Protocol):
    """A learner that launches the operators of a step, which can be recorded therefore."""

    @property
    def module(self) -> nn.Module:
        """Holds all weights and buffers that a step reads or writes."""

    @property
    def trained(self) -> Sequence[nn.Parameter]:
        """Weights that get gradients."""

    def data(self) -> DataSource:
        """Return the training set on the device."""

    def drop_gradients(self) -> None:
        """Leave no gradients."""


class EagerLearner:
    """Launches the operators of the network one by one, for each batch and each of its parts."""

    def __init__(
        self,
        step: Step,
        hyperparameters: Hyperparameters,
        module: nn.Module,
        criterion: nn.Module,
        trained: Sequence[nn.Parameter],
        train: Lease,
        randomness: Randomness,
        computing: Computing = EXACT,
        techniques: Techniques = NONE,
    ):
        """Train the parameters `trained` of `module` on the data set `train`."""
        self.step, self.module, self.criterion, self.trained = step, module, criterion, trained
        self.computing, self.scaler, self.techniques = computing, computing.scaler(), techniques
        self.scorer = Scorer(hyperparameters, step)
        self._train, self._split, self._randomness = train, hyperparameters.batch_split, randomness

    def __call__(self, batches: Sequence[Tensor]) -> Learned:
        """Do forward and backward for each part by itself, its loss times its share of the samples."""
        data, ignored = self.data(), self.scorer.ignored_in(self._train)
        parts = [part for batch in batches for part in batch.chunk(self._split)]
        self.drop_gradients()
        if len(parts) == 1:
            return self._learn(data, parts[0], None, ignored)
        samples = sum(len(batch) for batch in batches)
        learned = [self._learn(data, part, len(part) / samples, ignored) for part in parts]
        rights = [part.correct for part in learned if part.correct is not None]
        labels = [part.labels for part in learned if part.labels is not None]
        return Learned(
            torch.stack([part.loss for part in learned]).sum(),
            torch.stack(rights).sum() if rights else None,
            sum(labels) if labels else None,
        )

    def expect(self, batches: Sequence[Tensor]) -> None:
        """Tell the training set which batches come next."""
        self._train.use().expect(part for batch in batches for part in batch.chunk(self._split))

    def data(self) -> DataSource:
        """Return the training set on the device."""
        return self._train.use()

    def drop_gradients(self) -> None:
        """Do what the optimizer's `zero_grad(set_to_none=True)` does, without its profiler entry (5 us)."""
        for parameter in self.trained:
            parameter.grad = None

    def batch(self, data: DataSource, samples: Tensor | slice, *, training: bool = True) -> Batch:
        """Copy samples, as the network and the criterion get them."""
        return self.step.prepare(data.batch(samples), self._randomness.generator, training=training)

    def pair(self, data: DataSource, samples: Tensor | slice) -> tuple[Tensor, Tensor]:
        """Inputs and targets of a plain step."""
        batch = self.batch(data, samples)
        [inputs], targets = batch.inputs.values(), batch.targets
        if targets is None:
            raise NoBatchedForm("has no targets")
        return inputs, targets

    def _learn(self, data: DataSource, batch: Tensor, share: float | None, ignored: int | None) -> Learned:
        """Loss (times `share`) and right answers of `batch` (indices, int64)."""
        given = self.batch(data, batch)
        with self.techniques.part(self.module, given.tensors, self._randomness.generator):
            outputs = self.computing.forward(self.step, self.module, given)
            loss = self.step.loss(self.criterion, outputs, given)
            loss = loss if share is None else loss * share
            (loss if self.scaler is None else self.scaler.scale(loss)).backward()  # type: ignore[no-untyped-call]
        outputs = tuple(output.detach() for output in outputs)
        labels = self.scorer.labels(given.targets, ignored)
        return Learned(loss.detach(), self.scorer.answers(outputs, given.targets, ignored), labels)
