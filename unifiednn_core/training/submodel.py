"""One sub-model in training: everything that the exactness recipe says belongs to it alone.

The recipe (anyone can write the plain loop that gives the same bits): RNG state of `torch.manual_seed(seed)`; data
generator `torch.Generator().manual_seed(seed)`; each epoch `torch.randperm(n, generator=...)` on the CPU; batches are
consecutive slices of it, the last partial one kept unless `drop_last`; a step is `zero_grad(set_to_none=True)`,
forward, criterion, backward, `optimizer.step()`; the LR scheduler steps once per epoch unless the spec says per step;
evaluation runs after each epoch in `eval()` without grad, in file order.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from unifiednn_core.choices import CLASSIFICATION
from unifiednn_core.hybrid.separator import EpochFigures
from unifiednn_core.hybrid.unifier import Part
from unifiednn_core.intake.datasets import Dataset, to_model_input
from unifiednn_core.spec import SubModelSpec
from unifiednn_core.training.events import Stepped
from unifiednn_core.training.rng import RngState


class SubModel:
    """Module, optimizer, criterion, LR scheduler, RNG state, data order and cursor of one submitted network."""

    def __init__(
        self,
        part: Part,
        spec: SubModelSpec,
        *,
        seed: int,
        train: Dataset,
        test: Dataset | None,
        device: torch.device,
        release: Callable[[], object] = lambda: None,
    ):
        self.part, self.spec, self.release = part, spec, release
        """`release` lets go of the data sets, once this sub-model has ended."""
        self._train, self._test, self._device = train, test, device
        self._placed = False
        self._hyperparameters = part.hyperparameters
        self._scores_classes = part.hyperparameters.criterion in CLASSIFICATION
        self._rng = RngState.of_seed(seed, device)
        self._generator = torch.Generator().manual_seed(seed)
        self._order: Tensor | None = None
        """Permutation of the current epoch, int64 [samples], on the device; None between epochs."""
        self._cursor = 0
        self._tally = _Tally()
        self.epochs_done = 0
        self.steps_done = 0
        self.steps_per_epoch = part.hyperparameters.steps_per_epoch(len(train.targets))
        self.figures: list[EpochFigures] = []

    @property
    def name(self) -> str:
        """Name in the run."""
        return self.part.name

    @property
    def steps_total(self) -> int:
        """Steps of the whole training."""
        return self.steps_per_epoch * self._hyperparameters.epochs

    @property
    def finished(self) -> bool:
        """Whether all epochs are trained."""
        return self.epochs_done >= self._hyperparameters.epochs

    @contextmanager
    def world(self) -> Iterator[None]:
        """Swap in this sub-model's RNG and device state; on the way out keep the RNG and drop the gradients."""
        if not self._placed:  # a sub-model that has not started holds no memory on the device
            self.part.module.to(self._device).train()
            if self.part.optimizer.state and self._device.type != "cpu":  # Adagrad's is there at once; this moves it
                self.part.optimizer.load_state_dict(self.part.optimizer.state_dict())
            self._placed = True
        self._rng.restore(self._device)
        try:
            yield
        finally:
            self._rng = RngState.current(self._device)
            self.part.optimizer.zero_grad(set_to_none=True)

    def step(self) -> Stepped:
        """Train on the next batch. Must be called inside `world`."""
        if self._order is None:
            order = torch.randperm(len(self._train.targets), generator=self._generator)
            self._order, self._cursor = order.to(self._device), 0
        batch = self._order[self._cursor : self._cursor + self._hyperparameters.batch_size]
        inputs, targets = self._take(self._train, batch)

        optimizer = self.part.optimizer
        optimizer.zero_grad(set_to_none=True)
        outputs = self.part.module(inputs)
        loss = self.part.criterion(outputs, targets)
        loss.backward()
        optimizer.step()
        if self.part.lr_scheduler is not None and self._lr_per_step:
            self.part.lr_scheduler.step()

        self._cursor += len(batch)
        self.steps_done += 1
        loss, correct = loss.detach(), self._correct(outputs, targets)
        self._tally.add(loss, len(targets), correct, targets.numel())
        return Stepped(self.name, self.steps_done, loss, correct, targets.numel())

    @property
    def at_epoch_end(self) -> bool:
        """Whether the step just done was the last of its epoch."""
        return self._order is not None and self.steps_done % self.steps_per_epoch == 0

    def end_epoch(self) -> EpochFigures:
        """Step the LR scheduler, evaluate, and close the epoch. Must be called inside `world`."""
        learning_rate = float(self.part.optimizer.param_groups[0]["lr"])
        if self.part.lr_scheduler is not None and not self._lr_per_step:
            self.part.lr_scheduler.step()
        train_loss, train_accuracy = self._tally.means()
        test_loss, test_accuracy = self._evaluate() if self._test is not None else (None, None)
        self._order = None
        self.epochs_done += 1
        figures = EpochFigures(
            epoch=self.epochs_done,
            step=self.steps_done,
            learning_rate=learning_rate,
            train_loss=train_loss,
            train_accuracy=train_accuracy,
            test_loss=test_loss,
            test_accuracy=test_accuracy,
        )
        self.figures.append(figures)
        return figures

    @torch.no_grad()
    def _evaluate(self) -> tuple[float | None, float | None]:
        """Mean loss and accuracy over the test set."""
        test = self._test
        if test is None:
            return None, None
        module, size = self.part.module.eval(), self._hyperparameters.batch_size
        for start in range(0, len(test.targets), size):
            inputs = self._scaled(test.inputs[start : start + size])
            targets = test.targets[start : start + size]
            outputs = module(inputs)
            loss, correct = self.part.criterion(outputs, targets), self._correct(outputs, targets)
            self._tally.add(loss, len(targets), correct, targets.numel())
        module.train()
        return self._tally.means()

    def _take(self, dataset: Dataset, index: Tensor) -> tuple[Tensor, Tensor]:
        return self._scaled(dataset.inputs.index_select(0, index)), dataset.targets.index_select(0, index)

    def _scaled(self, inputs: Tensor) -> Tensor:
        return to_model_input(inputs, self.spec.scale, self.spec.mean, self.spec.std)

    def _correct(self, outputs: Tensor, targets: Tensor) -> Tensor | None:
        """Number of right classes in the batch, a scalar on the device; None where there are no classes."""
        return (outputs.detach().argmax(1) == targets).sum() if self._scores_classes else None

    @property
    def _lr_per_step(self) -> bool:
        lr_scheduler = self._hyperparameters.lr_scheduler
        return lr_scheduler is not None and lr_scheduler.per == "step"


class _Tally:
    """Loss and right answers of the steps since the last reading, left on the device until somebody reads."""

    def __init__(self) -> None:
        self._loss: Tensor | None = None
        self._correct: Tensor | None = None
        self._samples = self._labels = 0

    def add(self, loss: Tensor, samples: int, correct: Tensor | None, labels: int) -> None:
        """Count one batch of `samples` with its mean loss, and `correct` of `labels` answers."""
        weighted = loss.double() * samples
        self._loss = weighted if self._loss is None else self._loss + weighted
        self._samples += samples
        if correct is not None:
            self._correct = correct if self._correct is None else self._correct + correct
            self._labels += labels

    def means(self) -> tuple[float | None, float | None]:
        """Mean loss over samples and accuracy since the last call; the host waits for the device here."""
        loss = None if self._loss is None else self._loss.item() / self._samples
        accuracy = None if self._correct is None else self._correct.item() / self._labels
        self._loss, self._correct, self._samples, self._labels = None, None, 0, 0
        return loss, accuracy
