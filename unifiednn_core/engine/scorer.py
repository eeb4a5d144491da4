"""What the criterion of a sub-model counts: right answers and labels."""

from collections.abc import Sequence

import torch
from torch import Tensor

from unifiednn_core.engine.resident_data import Lease
from unifiednn_core.engine.step import Step
from unifiednn_core.spec.choices import CLASSIFICATION
from unifiednn_core.spec.run import Hyperparameters


class Scorer:
    """Counts right answers and labels the way the criterion of one sub-model does."""

    def __init__(self, hyperparameters: Hyperparameters, step: Step):
        self._classes, self._label = hyperparameters.criterion in CLASSIFICATION, hyperparameters.ignored_label
        self._step = step
        self._counting: dict[str, Tensor | None] = {}

    def ignored_in(self, data: Lease) -> int | None:
        """Label that does not count, if the data set has it; the host waits for the device only at the first call."""
        return None if self._label is None or self._counts(data) is None else self._label

    def counted(self, data: Lease, places: slice, order: Tensor | None = None) -> tuple[int, int]:
        """Weight of the mean loss of some samples, and their number of labels.

        The samples are those at `places` in `order` (indices on the host), or in the file. Some labels may not count:
        then the mean is that over the others.
        """
        counts = self._counts(data)
        if counts is not None:
            labels = int(counts[places if order is None else order[places]].sum())
            return labels, labels
        samples = min(places.stop, data.samples) - places.start
        targets = self._targets(data)
        return samples, 0 if targets is None else samples * (targets.numel() // data.samples)

    def answers(self, outputs: Sequence[Tensor], targets: Tensor | None, ignored: int | None) -> Tensor | None:
        """Right answers, a scalar on the device; None if there are no classes."""
        if not self._classes or targets is None:
            return None
        right = self._step.scores(outputs).argmax(1) == targets
        return torch.count_nonzero(right if ignored is None else right & (targets != ignored))

    def _counts(self, data: Lease) -> Tensor | None:
        """Labels of each sample that count, int64 [samples] on the host; None if all do."""
        if self._label is None or self._step.moves_targets:
            return None
        if data.sha256 not in self._counting:
            targets = self._targets(data)
            counting = None if targets is None else targets != self._label
            all_count = counting is None or bool(counting.all())
            counts = None if counting is None or all_count else counting.reshape(data.samples, -1).sum(1).cpu()
            self._counting[data.sha256] = counts
        return self._counting[data.sha256]

    def _targets(self, data: Lease) -> Tensor | None:
        """Targets of all samples, as far as that is known without transforms."""
        held = data.use()
        return self._step.targets_of(held.inputs, held.targets)
