"""What is written down where a run, a hybrid or a baseline, cannot be trained at all."""

from unifiednn_core.errors import UnifiedNNError
from unifiednn_core.lifecycle import ENDED, Event, State
from unifiednn_core.store import Store


def give_up(store: Store, run_id: str, error: Exception) -> None:
    """Record that a run cannot be trained at all."""
    cause = str(error) if isinstance(error, UnifiedNNError) else f"{type(error).__name__}: {error}"
    remedy = f"The log runs/{run_id}/worker.log in the home folder has the whole trace. Correct it, then retry."
    _, submodels = store.runs.get(run_id)
    for row in submodels:
        if State(row.state) not in ENDED:
            store.runs.transition(run_id, row.name, Event.FAIL, cause=cause, remedy=remedy)
    store.runs.transition(run_id, None, Event.FAIL, cause=cause, remedy=remedy)
