"""Progress of a sub-model: its data order, its cursor, the figures of its epochs, and early stopping."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from unifiednn_core.formats.weights import tree_to_cpu
from unifiednn_core.spec.run import EarlyStopping, Hyperparameters


@dataclass(frozen=True, slots=True)
class EpochFigures:
    """Figures of one epoch; None for a figure that does not exist. One row of `metrics.csv`."""

    epoch: int
    step: int
    learning_rate: float
    train_loss: float | None
    train_accuracy: float | None
    test_loss: float | None
    test_accuracy: float | None


class Tally:
    """Sums of loss and right answers since the last reading, kept on the device until then.

    Sums are float64 and int64, as tensors or plain numbers: both add up to the same bits.
    """

    def __init__(self) -> None:
        self._loss: Tensor | float | None = None
        self._correct: Tensor | int | None = None
        self._samples = self._labels = 0

    def add(self, loss: Tensor | float, samples: int, correct: Tensor | int | None, labels: int) -> None:
        """Count one batch: its mean loss over `samples` (or over the labels that count) and its right answers."""
        weighted = (loss.double() if isinstance(loss, Tensor) else loss) * samples
        self._loss = weighted if self._loss is None else self._loss + weighted
        self._samples += samples
        if correct is not None:
            self._correct = correct if self._correct is None else self._correct + correct
            self._labels += labels

    def is_finite(self) -> bool:
        """Whether no loss was NaN or infinite; the host waits for the device."""
        return self._loss is None or math.isfinite(self._loss)

    def means(self) -> tuple[float | None, float | None]:
        """Mean loss over samples, and accuracy, since the last call; the host waits for the device."""
        loss = None if self._loss is None else float(self._loss) / self._samples
        accuracy = None if self._correct is None else int(self._correct) / self._labels
        self._loss, self._correct, self._samples, self._labels = None, None, 0, 0
        return loss, accuracy

    def move(self, device: torch.device) -> None:
        """Move the sums to a device."""
        self._loss = self._loss.to(device) if isinstance(self._loss, Tensor) else self._loss
        self._correct = self._correct.to(device) if isinstance(self._correct, Tensor) else self._correct

    def state(self) -> dict[str, Any]:
        """Host copy of the sums."""
        loss = None if self._loss is None else torch.as_tensor(self._loss, dtype=torch.float64)
        correct = None if self._correct is None else torch.as_tensor(self._correct, dtype=torch.int64)
        sums = {"loss": loss, "correct": correct, "samples": self._samples, "labels": self._labels}
        copied: dict[str, Any] = tree_to_cpu(sums)
        return copied

    @classmethod
    def of_state(cls, state: Mapping[str, Any]) -> "Tally":
        """Restore what `state` returned, on the host."""
        tally, sums = cls(), tree_to_cpu(state)
        tally._loss, tally._correct = sums["loss"], sums["correct"]
        tally._samples, tally._labels = sums["samples"], sums["labels"]
        return tally


@dataclass(slots=True)
class Progress:
    """What changes from step to step, besides weights, optimizer and RNG."""

    generator: torch.Generator
    """Draws the data order."""
    order: Tensor | None = None
    """Permutation of the current epoch, int64 [samples]; None between epochs."""
    cursor: int = 0
    """Samples of `order` already used."""
    epochs_done: int = 0
    steps_done: int = 0
    figures: list[EpochFigures] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)

    def next_batches(self, samples: int, hyperparameters: Hyperparameters, device: torch.device) -> list[Tensor]:
        """Batches of the next step, each as indices of samples, int64 [batch_size] or fewer.

        An epoch begins with a permutation drawn on the CPU; its last step gets the batches that are left.
        """
        size = hyperparameters.batch_size
        if self.order is None:
            self.order, self.cursor = torch.randperm(samples, generator=self.generator).to(device), 0
        used = samples // size * size if hyperparameters.drop_last else samples
        end = min(used, self.cursor + size * hyperparameters.accumulation_steps)
        batches = [self.order[start : min(end, start + size)] for start in range(self.cursor, end, size)]
        self.cursor = end
        return batches

    def close_epoch(self, figures: EpochFigures) -> None:
        """Count an epoch as done."""
        self.order, self.cursor = None, 0
        self.epochs_done = figures.epoch
        self.figures.append(figures)

    def move(self, device: torch.device) -> None:
        """Move everything that a step reads to a device."""
        self.order = None if self.order is None else self.order.to(device)
        self.tally.move(device)

    def data_state(self) -> dict[str, Any]:
        """Host copy of generator, order and cursor."""
        return {"generator": self.generator.get_state(), "order": tree_to_cpu(self.order), "cursor": self.cursor}

    def metrics_state(self) -> dict[str, Any]:
        """Host copy of the finished epochs and the sums of the current one."""
        return {"figures": [asdict(row) for row in self.figures], "tally": self.tally.state()}

    @classmethod
    def of_state(cls, step: int, epoch: int, data: Mapping[str, Any], metrics: Mapping[str, Any]) -> "Progress":
        """Restore what `data_state` and `metrics_state` returned, on the host."""
        generator = torch.Generator()
        generator.set_state(data["generator"])
        return cls(
            generator=generator,
            order=tree_to_cpu(data["order"]),
            cursor=data["cursor"],
            epochs_done=epoch,
            steps_done=step,
            figures=[EpochFigures(**row) for row in metrics["figures"]],
            tally=Tally.of_state(metrics["tally"]),
        )


def stops_early(asked: EarlyStopping | None, figures: Sequence[EpochFigures]) -> bool:
    """Whether early stopping ends the training after these epochs; a missing or NaN value is no improvement."""
    if asked is None:
        return False
    sign = -1 if asked.metric == "test_accuracy" else 1
    best, since = math.inf, 0
    for row in figures:
        value: float | None = getattr(row, asked.metric)
        loss = math.inf if value is None else sign * value
        best, since = (loss, 0) if loss < best - asked.min_delta else (best, since + 1)
    return since >= asked.patience


def score_of(figures: Sequence[EpochFigures]) -> float | None:
    """Rank for the best checkpoint: test accuracy, else minus the loss, of the last finished epoch."""
    if not figures:
        return None
    last = figures[-1]
    if last.test_accuracy is not None:
        return last.test_accuracy
    loss = last.test_loss if last.test_loss is not None else last.train_loss
    return None if loss is None else -loss
