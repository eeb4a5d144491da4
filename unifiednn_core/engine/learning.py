"""Learners: forward and backward of a step, between taking its batches and its update.

`EagerLearner` does what the recipe says, one part after the other. Others may take its place if they leave the same
bits in the gradients, the buffers and the default generators.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from unifiednn_core.base.errors import NoBatchedForm
from unifiednn_core.data.batch import Batch
from unifiednn_core.data.datasets import DataSource
from unifiednn_core.engine.computing import EXACT, Computing
from unifiednn_core.engine.logical_devices import LogicalDevices, add_gradients, may_compute_at_once
from unifiednn_core.engine.randomness import Randomness
from unifiednn_core.engine.resident_data import Lease
from unifiednn_core.engine.scorer import Scorer
from unifiednn_core.engine.step import Step
from unifiednn_core.spec.run import Hyperparameters
from unifiednn_core.techniques import virtual_nodes
from unifiednn_core.techniques.build import NONE, Techniques


class Learned(NamedTuple):
    """What a step has learned, besides the gradients that it leaves in `.grad`."""

    loss: Tensor
    """Mean loss, a scalar on the device."""
    correct: Tensor | None
    """Correct predictions, a scalar on the device; None if there are no classes."""
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
    """Launches the operators of the network one by one, for each batch and each of its parts.

    A part is a share of the batch, of `batch_split` or of virtual nodes. Logical devices compute several parts at once;
    the gradients are added in the order of the parts all the same.
    """

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
        self._train, self._shares, self._randomness = train, hyperparameters.shares, randomness
        self.steps_done = 0
        """Steps before the next one, from which virtual nodes have their random numbers."""
        nodes = techniques.nodes
        self._devices = None if nodes is None else LogicalDevices(nodes.devices)
        self._at_once = not randomness.draws and self.scaler is None and may_compute_at_once(module, techniques)

    @property
    def devices(self) -> int | None:
        """Logical devices that compute its virtual nodes from the next step on; None if it has no nodes."""
        return None if self._devices is None else self._devices.count

    @devices.setter
    def devices(self, count: int) -> None:
        self.close()
        self._devices = LogicalDevices(count)

    def close(self) -> None:
        """End the threads of its logical devices; it takes no more steps."""
        if self._devices is not None:
            self._devices.close()

    def __call__(self, batches: Sequence[Tensor]) -> Learned:
        """Do forward and backward for each part by itself, its loss times its share of the samples."""
        data, ignored = self.data(), self.scorer.ignored_in(self._train)
        parts = self._parts(batches)
        self.drop_gradients()
        if len(parts) == 1:
            return self._of_node(0, data, parts[0], None, ignored)
        samples = sum(len(batch) for batch in batches)
        shares = [virtual_nodes.weight(len(part), samples) for part in parts]
        if self._devices is not None and self._devices.count > 1 and self._at_once:
            learned = self._learn_at_once(self._devices, data, parts, shares, ignored)
        else:
            each = enumerate(zip(parts, shares, strict=True))
            learned = [self._of_node(place, data, part, share, ignored) for place, (part, share) in each]
        rights = [part.correct for part in learned if part.correct is not None]
        labels = [part.labels for part in learned if part.labels is not None]
        return Learned(
            torch.stack([part.loss for part in learned]).sum(),
            torch.stack(rights).sum() if rights else None,
            sum(labels) if labels else None,
        )

    def expect(self, batches: Sequence[Tensor]) -> None:
        """Tell the training set which batches come next."""
        self._train.use().expect(self._parts(batches))

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

    def _parts(self, batches: Sequence[Tensor]) -> list[Tensor]:
        return [part for one in batches for part in torch.split(one, virtual_nodes.lengths(len(one), self._shares))]

    def _of_node(
        self, place: int, data: DataSource, batch: Tensor, share: float | None, ignored: int | None
    ) -> Learned:
        """Learn a part; that of a virtual node has random numbers of its own."""
        if self._devices is None:
            return self._learn(self.batch(data, batch), share, ignored)
        with self._randomness.seeded(virtual_nodes.seed_of(self._randomness.seed, self.steps_done + 1, place)):
            return self._learn(self.batch(data, batch), share, ignored)

    def _learn(self, given: Batch, share: float | None, ignored: int | None) -> Learned:
        """Loss (times `share`) and correct predictions of a part; adds its gradients."""
        with self.techniques.part(self.module, given.tensors, self._randomness.generator):
            outputs, loss = self._forward(given, share)
            (loss if self.scaler is None else self.scaler.scale(loss)).backward()  # type: ignore[no-untyped-call]
        return self._scored(given, outputs, loss, ignored)

    def _learn_at_once(
        self,
        devices: LogicalDevices,
        data: DataSource,
        parts: Sequence[Tensor],
        shares: Sequence[float],
        ignored: int | None,
    ) -> list[Learned]:
        """Do what `_learn` does for each part, as many at once as there are devices."""
        trained, learned = [one for one in self.trained if one.requires_grad], list[Learned]()

        def gradients_of(given: Batch, share: float) -> tuple[Learned, Sequence[Tensor | None]]:
            with self.techniques.part(self.module, given.tensors):
                outputs, loss = self._forward(given, share)
                gradients = torch.autograd.grad(loss, trained, allow_unused=True)
            return self._scored(given, outputs, loss, ignored), gradients

        for wave in virtual_nodes.waves(len(parts), devices.count):
            given = [self.batch(data, parts[node]) for node in wave]
            work = [partial(gradients_of, one, shares[node]) for node, one in zip(wave, given, strict=True)]
            for one, gradients in devices.compute(work, self.computing.device_type):
                add_gradients(trained, gradients)
                learned.append(one)
        return learned

    def _forward(self, given: Batch, share: float | None) -> tuple[tuple[Tensor, ...], Tensor]:
        outputs = self.computing.forward(self.step, self.module, given)
        loss = self.step.loss(self.criterion, outputs, given)
        return outputs, loss if share is None else loss * share

    def _scored(self, given: Batch, outputs: Sequence[Tensor], loss: Tensor, ignored: int | None) -> Learned:
        outputs = tuple(output.detach() for output in outputs)
        labels = self.scorer.labels(given.targets, ignored)
        return Learned(loss.detach(), self.scorer.answers(outputs, given.targets, ignored), labels)
