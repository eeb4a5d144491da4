"""Right answers of a batch, where there are classes."""

import torch
from torch import Tensor

from unifiednn_core.choices import CLASSIFICATION
from unifiednn_core.spec import Hyperparameters


def answers(outputs: Tensor, targets: Tensor, hyperparameters: Hyperparameters) -> tuple[Tensor | None, int]:
    """Right answers, a scalar on the device, and how many there were; None where none counts.

    Answers to `ignore_index` do not count where it is given; the host waits for the device then.
    """
    ignored = hyperparameters.criterion_args.get("ignore_index")
    labels = targets.numel() if ignored is None else int(torch.count_nonzero(targets != ignored))
    if hyperparameters.criterion not in CLASSIFICATION or not labels:
        return None, labels
    right = outputs.argmax(1) == targets
    return torch.count_nonzero(right if ignored is None else right & (targets != ignored)), labels
