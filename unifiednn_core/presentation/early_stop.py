"""What is said of a training that was complete before its last epoch."""

from collections.abc import Mapping
from typing import Any

from unifiednn_core.lifecycle import State
from unifiednn_core.spec import EarlyStopping
from unifiednn_core.store.schema import SubModelRow


def early_stop(row: SubModelRow, hyperparameters: Mapping[str, Any]) -> str | None:
    """Sentence about a sub-model that stopped early; None for all others."""
    asked = hyperparameters.get("early_stopping")
    if not asked or State(row.state) is not State.COMPLETED or row.epochs_done >= row.epochs:
        return None
    return EarlyStopping.model_validate(asked).sentence(row.epochs_done, row.epochs)
