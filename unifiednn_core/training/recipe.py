"""What a checkpoint belongs to, in plain values, and how good it is."""

from collections.abc import Sequence
from typing import Any

import torch

from unifiednn_core.hybrid.separator import EpochFigures
from unifiednn_core.spec import Hyperparameters


def recipe(hyperparameters: Hyperparameters, seed: int, samples: int, device: torch.device) -> dict[str, Any]:
    """Everything beside the network that the next steps follow from."""
    asked = hyperparameters.model_dump(mode="json", exclude={"epochs", "seed", "early_stopping", "techniques"})
    return {**asked, "seed": seed, "samples": samples, "device_type": device.type, "torch": torch.__version__}


def score_of(figures: Sequence[EpochFigures]) -> float | None:
    """What "best" goes by: test accuracy, else minus the loss, of the last finished epoch."""
    if not figures:
        return None
    last = figures[-1]
    if last.test_accuracy is not None:
        return last.test_accuracy
    loss = last.test_loss if last.test_loss is not None else last.train_loss
    return None if loss is None else -loss
