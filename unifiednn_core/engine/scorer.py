"""What the criterion of a sub-model counts: correct predictions and labels."""

from collections.abc import Sequence

import torch
from torch import Tensor

from unifiednn_core.data.datasets import DataSource, places_of_blocks
from unifiednn_core.engine.resident_data import Lease
from unifiednn_core.engine.step import TARGETS, Step
from unifiednn_core.spec.choices import CLASSIFICATION
from unifiednn_core.spec.run import Hyperparameters


class Scorer:
    """Counts correct predictions and labels the way the criterion of one sub-model does."""

    def __init__(self, hyperparameters: Hyperparameters, step: Step):
        self._classes, self._label = hyperparameters.criterion in CLASSIFICATION, hyperparameters.ignored_label
        self._step, self._moves = step, step.moves_targets
        self._counting: dict[str, Tensor | None] = {}
        self._of_sample: dict[str, int] = {}

    def ignored_in(self, data: Lease) -> int | None:
        """Label that does not count, if there are any; the host waits for the device only at the first call."""
        may_be = self._moves or self._counts(data) is not None
        return self._label if may_be else None

    def labels(self, targets: Tensor | None, ignored: int | None) -> int | Tensor | None:
        """Labels of a batch that count, where transforms change targets; a scalar on the device if some may not."""
        if not self._moves or targets is None:
            return None
        return targets.numel() if ignored is None else torch.count_nonzero(targets != ignored)

    def counted(
        self, data: Lease, places: slice, order: Tensor | None = None, labels: int | Tensor | None = None
    ) -> tuple[int, int]:
        """Weight of the mean loss of some samples, and their number of labels, which may be known as `labels`.

        The samples are those at `places` in `order` (indices on the host), or in the file. Some labels may not count:
        then the mean is that over the others.
        """
        if labels is not None:  # on a GPU the host waits for it
            count = int(labels)
            return (min(places.stop, data.samples) - places.start if self._label is None else count), count
        counts = self._counts(data)
        if counts is not None:
            count = int(counts[places if order is None else order[places]].sum())
            return count, count
        samples = min(places.stop, data.samples) - places.start
        if data.sha256 not in self._of_sample:
            first = self._targets(data.use(), slice(0, 1))
            self._of_sample[data.sha256] = 0 if first is None else first.numel()
        return samples, samples * self._of_sample[data.sha256]

    def answers(self, outputs: Sequence[Tensor], targets: Tensor | None, ignored: int | None) -> Tensor | None:
        """Correct predictions, a scalar on the device; None if there are no classes."""
        if not self._classes or targets is None:
            return None
        right = self._step.scores(outputs).argmax(1) == targets
        return torch.count_nonzero(right if ignored is None else right & (targets != ignored))

    def _counts(self, data: Lease) -> Tensor | None:
        """Labels of each sample that count, int64 [samples] on the host; None if all do."""
        if self._label is None or self._moves:
            return None
        if data.sha256 not in self._counting:
            self._counting[data.sha256] = self._count(data.use(), self._label)
        return self._counting[data.sha256]

    def _count(self, data: DataSource, label: int) -> Tensor | None:
        """As `_counts`, block by block: targets may be as large as the data set, and be made of its inputs."""
        found, of_sample = list[Tensor](), 0
        for places in places_of_blocks(data, self._entry(data)):
            if (targets := self._targets(data, places)) is None:
                return None
            counting = torch.ne(targets, label).reshape(len(targets), -1)
            of_sample = counting.shape[1]
            found.append(counting.sum(1))
        counts = torch.cat(found)
        return None if bool((counts == of_sample).all()) else counts.cpu()

    def _entry(self, data: DataSource) -> str:
        """The entry of the data set that the targets come from."""
        return TARGETS if self._step.targets == "stored" and data.targets is not None else self._step.first

    def _targets(self, data: DataSource, places: slice) -> Tensor | None:
        """Targets of some samples, as far as they are known without transforms."""
        if self._step.targets == "stored":
            return None if data.targets is None else data.rows(TARGETS, places)
        first = self._step.first
        return self._step.targets_of({first: data.rows(first, places)}, None)
