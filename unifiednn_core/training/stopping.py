"""When a training ends before its last epoch, told by the figures of the epochs alone."""

import math
from collections.abc import Sequence

from unifiednn_core.hybrid.separator import EpochFigures
from unifiednn_core.spec import EarlyStopping


def epochs_without_gain(asked: EarlyStopping, figures: Sequence[EpochFigures]) -> int:
    """Epochs since the metric was last better than ever before; one that is missing or no number is not better."""
    sign = -1 if asked.metric == "test_accuracy" else 1
    best, since = math.inf, 0
    for row in figures:
        value: float | None = getattr(row, asked.metric)
        loss = math.inf if value is None else sign * value
        best, since = (loss, 0) if loss < best - asked.min_delta else (best, since + 1)
    return since


def stops_early(asked: EarlyStopping | None, figures: Sequence[EpochFigures]) -> bool:
    """Whether the epochs so far are reason to train no further."""
    return asked is not None and epochs_without_gain(asked, figures) >= asked.patience
