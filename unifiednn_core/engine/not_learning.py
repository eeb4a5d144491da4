"""Whether a sub-model learns at all, from the figures of its epochs. Changes nothing and draws nothing."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from unifiednn_core.data.balance import class_counts
from unifiednn_core.data.datasets import DataSource, targets_in_blocks
from unifiednn_core.engine.progress import EpochFigures
from unifiednn_core.spec.run import Hyperparameters

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
