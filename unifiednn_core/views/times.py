"""Wait, service, turnaround and makespan: one definition each, for documents, terminal, pages and verdicts. Pure.

| figure | of a hybrid | of a baseline |
|---|---|---|
| turnaround | submission of the sub-model to its model delivered | launch of the baseline to the end of the process |
| service | seconds on the device | seconds in which its process ran |
| wait | turnaround without service and pauses | the same |
| makespan | launch of the first process to the last model delivered | the same |

A sub-model that joins a run later is submitted when it joins. A baseline counts from its launch because it never runs
at the same time as another run: its time in the queue says nothing about plain PyTorch.
"""

from collections.abc import Iterable
from typing import NamedTuple

from unifiednn_core.store.schema import HYBRID, RunRow, SubModelRow


class PartTimes(NamedTuple):
    """Seconds of one sub-model: so far, or in total once it has ended."""

    wait_s: float
    paused_s: float
    turnaround_s: float | None
    """None until it has ended."""


def part_times(run: RunRow, row: SubModelRow, now_s: float) -> PartTimes:
    """Times of a sub-model at `now_s` (UTC)."""
    until_s = now_s if row.ended_at_s is None else row.ended_at_s
    paused_s = row.paused_s + (0.0 if row.paused_since_s is None else max(0.0, until_s - row.paused_since_s))
    submitted_at_s = run.created_at_s if row.joined_at_s is None else row.joined_at_s
    from_s = submitted_at_s if run.mode == HYBRID else run.launched_at_s
    if from_s is None:  # a baseline that waits for the device
        return PartTimes(0.0, paused_s, None)
    so_far_s = max(0.0, until_s - from_s)
    wait_s = max(0.0, so_far_s - row.service_s - paused_s)
    return PartTimes(wait_s, paused_s, None if row.ended_at_s is None else so_far_s)


def makespan_s(run: RunRow, rows: Iterable[SubModelRow]) -> float | None:
    """Launch of the first process to the end of the last sub-model; None until all have ended."""
    ends_s = [row.ended_at_s for row in rows]
    known_s = [end_s for end_s in ends_s if end_s is not None]
    if run.launched_at_s is None or not known_s or len(known_s) < len(ends_s):
        return None
    return max(0.0, max(known_s) - run.launched_at_s)


def elapsed_s(run: RunRow, rows: Iterable[SubModelRow], now_s: float) -> float | None:
    """Seconds since the launch; the makespan once the run has ended. None before the launch."""
    if run.launched_at_s is None:
        return None
    total_s = makespan_s(run, rows) if run.ended_at_s is not None else None
    until_s = now_s if run.ended_at_s is None else run.ended_at_s
    return max(0.0, until_s - run.launched_at_s) if total_s is None else total_s


def mean_turnaround_s(turnarounds_s: Iterable[float | None]) -> float | None:
    """Mean over the sub-models of a run; None until all have ended."""
    all_s = list(turnarounds_s)
    known_s = [turnaround_s for turnaround_s in all_s if turnaround_s is not None]
    return sum(known_s) / len(known_s) if known_s and len(known_s) == len(all_s) else None
