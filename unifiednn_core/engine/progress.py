"""Progress of a sub-model: its data order, its cursor, the figures of its last epoch, and early stopping.

Also whether it learns at all, which changes nothing and draws nothing.

What is kept does not grow with the epochs: `EpochDone` tells the figures of each, and the store has them.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from unifiednn_core.data.balance import class_counts
from unifiednn_core.data.datasets import DataSource, targets_in_blocks
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


@dataclass(frozen=True, slots=True)
class Improvement:
    """What early stopping has seen of a metric."""

    metric: str
    best: float = math.inf
    """Its best value; of an accuracy its negative, so that less is better."""
    bad_epochs: int = 0
    """Epochs since then."""


@dataclass(slots=True)
class Tally:
    """Sums of loss and correct predictions since the last reading, kept on the device until then.

    Sums are float64 and int64, as tensors or plain numbers: both add up to the same bits.
    """

    loss: Tensor | float | None = None
    correct: Tensor | int | None = None
    samples: int = 0
    labels: int = 0

    def add(self, loss: Tensor | float, samples: int, correct: Tensor | int | None, labels: int) -> None:
        """Count one batch: its mean loss over `samples` (or over the labels that count) and its correct predictions."""
        weighted = (loss.double() if isinstance(loss, Tensor) else loss) * samples
        self.loss = weighted if self.loss is None else self.loss + weighted
        self.samples += samples
        if correct is not None and labels:
            self.correct = correct if self.correct is None else self.correct + correct
            self.labels += labels

    def is_finite(self) -> bool:
        """Whether no loss was NaN or infinite; the host waits for the device."""
        return self.loss is None or math.isfinite(self.loss)

    def means(self) -> tuple[float | None, float | None]:
        """Mean loss over samples, and accuracy, since the last call; the host waits for the device."""
        loss = None if self.loss is None else float(self.loss) / self.samples
        accuracy = None if self.correct is None else int(self.correct) / self.labels
        self.loss, self.correct, self.samples, self.labels = None, None, 0, 0
        return loss, accuracy

    def move(self, device: torch.device) -> None:
        """Move the sums to a device."""
        self.loss = self.loss.to(device) if isinstance(self.loss, Tensor) else self.loss
        self.correct = self.correct.to(device) if isinstance(self.correct, Tensor) else self.correct

    def state(self) -> dict[str, Any]:
        """Host copy of the sums, as arguments of `Tally`."""
        loss = None if self.loss is None else torch.as_tensor(self.loss, dtype=torch.float64)
        correct = None if self.correct is None else torch.as_tensor(self.correct, dtype=torch.int64)
        sums = {"loss": loss, "correct": correct, "samples": self.samples, "labels": self.labels}
        copied: dict[str, Any] = tree_to_cpu(sums)
        return copied


@dataclass(slots=True)
class Progress:
    """State that changes from step to step, besides weights, optimizer and RNG."""

    generator: torch.Generator
    """Draws the data order."""
    order: Tensor | None = None
    """Samples of the current epoch in order, on the host, int64 [samples]; None between epochs."""
    cursor: int = 0
    """Samples of `order` already used."""
    used: slice = field(default_factory=lambda: slice(0, 0))
    """Places in `order` of the samples of the current step."""
    epochs_done: int = 0
    steps_done: int = 0
    last: EpochFigures | None = None
    """Figures of the last finished epoch."""
    improvement: Improvement | None = None
    """None without early stopping, and before the first epoch."""
    tally: Tally = field(default_factory=Tally)
    _placed: Tensor | None = None
    """`order` on the device."""

    def next_batches(
        self,
        samples: int,
        hyperparameters: Hyperparameters,
        device: torch.device,
        draw: Callable[[torch.Generator], Tensor],
    ) -> list[Tensor]:
        """Batches of the next step, each as indices of samples on the device, int64 [at most batch_size].

        An epoch begins with an order that `draw` draws on the CPU; its last step gets the remaining batches.
        """
        if self.order is None:
            self.order, self.cursor = draw(self.generator), 0
        if self._placed is None:
            self._placed = self.order.to(device)
        batches, end = self._following(self._placed, samples, hyperparameters)
        self.used, self.cursor = slice(self.cursor, end), end
        return batches

    def upcoming(self, samples: int, hyperparameters: Hyperparameters) -> list[Tensor]:
        """Batches of the step after the one just taken, as indices on the host; none at the end of an epoch."""
        return [] if self.order is None else self._following(self.order, samples, hyperparameters)[0]

    def _following(self, order: Tensor, samples: int, hyperparameters: Hyperparameters) -> tuple[list[Tensor], int]:
        """Batches of a step from the cursor on, and the place where they end."""
        size, used = hyperparameters.batch_size, used_samples(samples, hyperparameters)
        end = min(used, self.cursor + size * hyperparameters.accumulation_steps)
        return [order[start : min(end, start + size)] for start in range(self.cursor, end, size)], end

    @property
    def placed_order(self) -> Tensor | None:
        """The order of the current epoch on the device, once a step has used it."""
        return self._placed

    def close_epoch(self, figures: EpochFigures, stopping: EarlyStopping | None) -> None:
        """Count an epoch as done."""
        self.order, self._placed, self.cursor = None, None, 0
        self.epochs_done, self.last = figures.epoch, figures
        self.improvement = None if stopping is None else _improved(stopping, self.improvement, figures)

    def move(self, device: torch.device) -> None:
        """Move everything that a step reads to a device."""
        self._placed = None
        self.tally.move(device)

    def data_state(self) -> dict[str, Any]:
        """Host copy of generator, order and cursor."""
        return {"generator": self.generator.get_state(), "order": tree_to_cpu(self.order), "cursor": self.cursor}

    def metrics_state(self) -> dict[str, Any]:
        """Host copy of the last epoch, of what early stopping has seen, and of the sums of the current epoch."""
        last = None if self.last is None else asdict(self.last)
        seen = None if self.improvement is None else asdict(self.improvement)
        return {"last": last, "improvement": seen, "tally": self.tally.state()}

    @classmethod
    def of_state(cls, step: int, epoch: int, data: Mapping[str, Any], metrics: Mapping[str, Any]) -> "Progress":
        """Restore what `data_state` and `metrics_state` returned, on the host."""
        generator = torch.Generator()
        generator.set_state(data["generator"])
        last, seen = metrics["last"], metrics["improvement"]
        return cls(
            generator=generator,
            order=tree_to_cpu(data["order"]),
            cursor=data["cursor"],
            epochs_done=epoch,
            steps_done=step,
            last=None if last is None else EpochFigures(**last),
            improvement=None if seen is None else Improvement(**seen),
            tally=Tally(**tree_to_cpu(metrics["tally"])),
        )


def used_samples(samples: int, hyperparameters: Hyperparameters) -> int:
    """Samples of an epoch; `drop_last` leaves out the last partial batch."""
    size = hyperparameters.batch_size
    return samples // size * size if hyperparameters.drop_last else samples


def stops_early(asked: EarlyStopping | None, seen: Improvement | None) -> bool:
    """Whether early stopping ends the training now."""
    return asked is not None and _counts(asked, seen).bad_epochs >= asked.patience


def _improved(asked: EarlyStopping, seen: Improvement | None, figures: EpochFigures) -> Improvement:
    """What early stopping has seen after one more epoch; a missing or NaN value is no improvement."""
    known, value = _counts(asked, seen), getattr(figures, asked.metric)
    loss = math.inf if value is None else -value if asked.metric == "test_accuracy" else value
    if loss < known.best - asked.min_delta:
        return Improvement(asked.metric, loss)
    return replace(known, bad_epochs=known.bad_epochs + 1)


def _counts(asked: EarlyStopping, seen: Improvement | None) -> Improvement:
    """What counts of what was seen: nothing of another metric, which a training that started elsewhere may have had."""
    return seen if seen is not None and seen.metric == asked.metric else Improvement(asked.metric)


def score_of(last: EpochFigures | None) -> float | None:
    """Rank for the best checkpoint: test accuracy, else minus the loss, of the last finished epoch."""
    if last is None or last.test_accuracy is not None:
        return None if last is None else last.test_accuracy
    loss = last.test_loss if last.test_loss is not None else last.train_loss
    return None if loss is None else -loss


LEAST_STEPS = 50
"""Steps at a full learning rate before anything is said."""
NEAR = 0.99
"""A loss below this share of that of a constant answer is learned."""
EVEN = 0.95
"""Share of ln(classes) from which on a constant answer tells nothing but how many classes there are."""
STILL = 0.999
"""Share of the training loss of the first epoch above which a later one has not moved."""
Sign = Literal["weights", "outputs", "chance", "training_only"]
"""What shows it: no weight changes, the output is the same for all samples, loss and accuracy are those of a constant
answer, or they still are on the test data, though no longer on the training data."""


@dataclass(frozen=True, slots=True)
class ConstantAnswer:
    """What the best answer gets that is the same for all samples."""

    loss: float
    accuracy: float
    labels: int
    even: bool

    @classmethod
    def on(cls, data: DataSource, hyperparameters: Hyperparameters, criterion: nn.Module) -> "ConstantAnswer | None":
        """Count the labels of a data set; None unless each sample has one label, of several that are there."""
        targets = data.targets
        if hyperparameters.criterion not in ("cross_entropy", "nll") or targets is None or targets.dim() != 1:
            return None
        try:
            counts = torch.tensor(class_counts(targets_in_blocks(data) or (), hyperparameters.ignored_label))
        except ValueError:  # no label counts
            return None
        present = int(torch.count_nonzero(counts))
        if present < 2:
            return None
        weight = getattr(criterion, "weight", None)
        weighted = counts.double() if weight is None else counts * weight[: len(counts)].double().cpu()
        if hyperparameters.sampler is not None and hyperparameters.sampler.name == "balanced":
            weighted = (counts > 0).double()
        smoothing = getattr(criterion, "label_smoothing", 0.0)
        shares = (1 - smoothing) * weighted / weighted.sum() + smoothing / len(counts)
        loss = -float(torch.xlogy(shares, shares).sum())
        labels = int(counts.sum())
        return cls(loss, int(counts.max()) / labels, labels, loss >= EVEN * math.log(present))

    def equals(self, loss: float | None, accuracy: float | None) -> bool:
        """Whether these figures are no better. Weights as they were drawn can be a little more often right."""
        if loss is None or accuracy is None:
            return False
        spread = math.sqrt(self.accuracy * (1 - self.accuracy) / self.labels)
        by_chance = self.accuracy + max(3 * spread, 0.1 * (1 - self.accuracy))
        return loss >= NEAR * self.loss and accuracy <= by_chance

    def near(self, loss: float | None) -> bool:
        """Whether weights as they were drawn can have this loss."""
        return loss is not None and loss >= EVEN * self.loss


@dataclass(frozen=True, slots=True)
class NotLearning:
    """Why a sub-model seems not to learn."""

    sign: Sign
    constant_loss: float | None = None
    """Of the best constant answer, on the test data if there are any; None if it has no classes."""
    constant_accuracy: float | None = None


def may_be_judged(figures: Sequence[EpochFigures], hyperparameters: Hyperparameters) -> bool:
    """Whether there were enough steps, and none of them in a warm-up of the learning rate."""
    last, warm_up = figures[-1], 0 if hyperparameters.warm_up is None else hyperparameters.warm_up.steps
    if last.step < LEAST_STEPS + warm_up:
        return False
    if len(figures) == 1:
        return last.learning_rate >= 0.999 * hyperparameters.learning_rate
    return last.learning_rate <= figures[-2].learning_rate


def judged(
    figures: Sequence[EpochFigures],
    train: ConstantAnswer | None,
    test: ConstantAnswer | None,
    *,
    same_weights: bool,
    same_output: bool,
    before: NotLearning | None = None,
) -> NotLearning | None:
    """Judge the first epoch, the last but one and the last; `before` is what was found after the last but one.

    A loss that is chance because one class is frequent may still be on its way: then it takes two epochs.
    """
    last = figures[-1]
    at = test or train
    constant = (None, None) if at is None else (at.loss, at.accuracy)
    stays = len(figures) > 1 and (last.train_loss or 0.0) > STILL * (figures[0].train_loss or 0.0)
    if same_weights and stays:  # a schedule may end at a learning rate of 0
        return NotLearning("weights", *constant)
    if same_output:
        return NotLearning("outputs", *constant)
    if train is None:
        return None

    def tested_nothing(row: EpochFigures) -> bool:
        return test is not None and test.equals(row.test_loss, row.test_accuracy)

    def learned_nothing(row: EpochFigures) -> bool:
        return train.equals(row.train_loss, row.train_accuracy) and (test is None or tested_nothing(row))

    if train.even:
        near = train.near(last.train_loss) and (test is None or test.near(last.test_loss))
        found = learned_nothing(last) or (stays and near)
    else:
        found = len(figures) > 1 and learned_nothing(figures[-2]) and learned_nothing(last)
    if found:
        return NotLearning("chance", *constant)
    known = before is not None and before.sign in ("chance", "training_only")
    return NotLearning("training_only", *constant) if known and tested_nothing(last) else None


def norms(parameters: Sequence[Tensor]) -> tuple[float, ...]:
    """Norms of trained weights, which change whenever one of them does but for the rarest of chances."""
    trained = [one.detach() for one in parameters if one.requires_grad and one.is_floating_point()]
    found = [torch.linalg.vector_norm(one, dtype=torch.float64) for one in trained]
    return tuple(torch.stack([one.to(found[0].device) for one in found]).tolist()) if found else ()


def is_constant(output: Tensor, raw: Tensor) -> bool:
    """Whether a network gives the same output for all samples of a batch, though these differ as they are stored."""
    if not output.is_floating_point() or output.dim() == 0 or len(output) != len(raw) or len(raw) < 2:
        return False
    spread = (output - output[:1]).abs().amax()
    return bool(spread <= 1e-6 * output.abs().amax()) and bool((raw != raw[:1]).any())
