"""Right answers of a batch, where there are classes, and which answers do not count."""

import torch
from torch import Tensor

from unifiednn_core.choices import CLASSIFICATION
from unifiednn_core.spec import Hyperparameters
from unifiednn_core.training.data import Lease


class Scorer:
    """Tells right from wrong as the criterion of one sub-model does."""

    def __init__(self, hyperparameters: Hyperparameters):
        self._classes, self._label = hyperparameters.criterion in CLASSIFICATION, hyperparameters.ignored_label
        self._found: dict[str, bool] = {}

    def ignored_in(self, data: Lease) -> int | None:
        """Label that does not count, where the data set has it; the host waits for the device the first time alone."""
        if self._label is None:
            return None
        if data.sha256 not in self._found:
            self._found[data.sha256] = bool((data.use().targets == self._label).any())
        return self._label if self._found[data.sha256] else None

    def answers(self, outputs: Tensor, targets: Tensor, ignored: int | None) -> tuple[Tensor | None, int]:
        """Right answers, a scalar on the device, and how many there were; None where none counts.

        Where some are to be ignored the host waits for the device.
        """
        labels = targets.numel() if ignored is None else int(torch.count_nonzero(targets != ignored))
        if not self._classes or not labels:
            return None, labels
        right = outputs.argmax(1) == targets
        return torch.count_nonzero(right if ignored is None else right & (targets != ignored)), labels
