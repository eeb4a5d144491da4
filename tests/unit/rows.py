"""Rows of runs as tests write them: the columns of a run and of its private hybrid side by side."""

from typing import Any

from unifiednn_core.store.schema import HybridRow, RunRow, SubModelRow

_OF_RUN, _OF_HYBRID = set(RunRow.__table__.columns.keys()), set(HybridRow.__table__.columns.keys())
_NOT_OF_HYBRID = {"ended_at_s", "prediction", "shared", "state"}


def of_hybrid(**columns: Any) -> dict[str, Any]:
    """Those of these columns that its private hybrid has, too or alone."""
    return {name: value for name, value in columns.items() if name in _OF_HYBRID - _NOT_OF_HYBRID}


def run_of(**columns: Any) -> RunRow:
    """A row of a run with that of its private hybrid."""
    own = {name: value for name, value in columns.items() if name in _OF_RUN}
    return RunRow(**own, hybrid=HybridRow(**of_hybrid(**columns)))


def row_of(run_id: str, **columns: Any) -> RunRow:
    """A run that waits for the CPU, but for these columns."""
    plain = {"name": run_id, "state": "queued", "device": "cpu", "threads": 1, "spec": {}, "created_at_s": 0.0}
    return RunRow(id=run_id, **{**plain, **columns})


def part_of(**columns: Any) -> SubModelRow:
    """A sub-model that waits for its first step, but for these columns."""
    plain = {"arrival": 0, "state": "queued", "priority": 0, "model_format": "pt2", "parameters": 1}
    return SubModelRow(**{**plain, "epochs": 1, "steps_total": 10, **columns})
