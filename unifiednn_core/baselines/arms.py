"""Rows of a run that trains the same as another one, in another way, and whether they can stand for it."""

from collections.abc import Sequence

from unifiednn_core.lifecycle import ENDED, State
from unifiednn_core.store.schema import RunRow, SubModelRow
from unifiednn_core.views.comparison import Mode

_SAME_TRAINING = ("name", "device", "fingerprint", "spec", "threads", "prediction")
_SAME_FACTS = ("files", "asked_sha256", "measured_on")
_SAME_SUBMODEL = ("name", "arrival", "priority", "model_format", "parameters", "epochs", "steps_total", "memory_key")
_SPOILED = {State.STOPPING, *ENDED - {State.COMPLETED}}


def is_whole(run: RunRow, rows: Sequence[SubModelRow]) -> bool:
    """Whether a baseline is finished, trains or waits, with all its sub-models."""
    states = {State(run.state), *(State(row.state) for row in rows)}
    return states == {State.COMPLETED} or not states & _SPOILED


def as_baseline(
    run: RunRow, rows: Sequence[SubModelRow], mode: Mode, *, run_id: str, now_s: float
) -> tuple[RunRow, list[SubModelRow]]:
    """Rows of the baseline of a run, queued since `now_s`."""
    baseline = RunRow(
        **{column: getattr(run, column) for column in _SAME_TRAINING},
        id=run_id,
        state=State.QUEUED.value,
        mode=mode,
        created_at_s=now_s,
        environment={key: run.environment[key] for key in _SAME_FACTS},
    )
    parts = [
        SubModelRow(
            **{column: getattr(row, column) for column in _SAME_SUBMODEL}, run_id=run_id, state=State.QUEUED.value
        )
        for row in rows
    ]
    return baseline, parts
