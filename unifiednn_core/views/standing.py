"""The line inside a hybrid: who trains next and after that, as its own policy decides. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from unifiednn_core.preflight.deadlines import due_at_s
from unifiednn_core.scheduling.base import JobView, View
from unifiednn_core.scheduling.registry import policy_named
from unifiednn_core.spec.lifecycle import State
from unifiednn_core.store.schema import HYBRID
from unifiednn_core.views.people import view_of
from unifiednn_core.views.runs import LinePlace

_IN_LINE = (State.QUEUED.value, State.RUNNING.value)


def line_of(
    run: Any, rows: Sequence[Any], policy: Mapping[str, Any], now_s: float, ends_s: Mapping[str, float] | None = None
) -> dict[str, LinePlace]:
    """Place of each waiting sub-model in the line of a private hybrid that trains, by name; empty for other runs.

    The policy is asked for the next one, then without it for the one after, and so on: the order in which each gets
    its next turn if nobody comes. `ends_s` is when the last turn of each ended, in seconds since the start of the run;
    without it, fewer epochs mean a longer wait. Also takes light rows.
    """
    if run.mode != HYBRID or run.shared or run.state != State.RUNNING.value:
        return {}
    open_rows = [row for row in rows if row.state in _IN_LINE]
    waiting = [row for row in open_rows if row.lane is None]
    jobs = _jobs(run, rows, waiting, now_s, ends_s)
    at_work = tuple(row.name for row in open_rows if row.lane is not None)
    found: dict[str, LinePlace] = {}
    try:
        parameters = {name: value for name, value in policy.items() if name != "name"}
        asked = policy_named(policy.get("name", "fcfs"), parameters)
        while jobs:
            decision = asked.decide(View(tuple(jobs), now_s))
            place = len(at_work) + len(found) + 1
            kept = [job for job in jobs if job.name != decision.job]
            if len(kept) == len(jobs):
                return {}
            jobs = kept
            found[decision.job] = LinePlace(place, len(open_rows), not found, decision.reason)
    except Exception:  # of a policy that is gone or that fails, which the engine tells: the order is unknown
        return {}
    return found


def _jobs(
    run: Any, rows: Sequence[Any], waiting: Sequence[Any], now_s: float, ends_s: Mapping[str, float] | None
) -> list[JobView]:
    """Waiting sub-models as the policy sees them, in order of arrival; nobody shares the device by tickets here."""
    served_s: dict[str, float] = {}
    for row in rows:
        served_s[row.owner] = served_s.get(row.owner, 0.0) + row.service_s
    jobs = [
        view_of(
            JobView,
            row,
            in_line_since=0,
            seconds_per_step=row.service_s / row.steps_done if row.steps_done and row.service_s else None,
            waiting_s=max(0.0, now_s - (run.created_at_s if row.joined_at_s is None else row.joined_at_s)),
            tickets=1.0,
            owner_service_s=served_s[row.owner],
            deadline_s=None if row.deadline_s is None else due_at_s(run, row),
        )
        for row in waiting
    ]

    def since(job: JobView) -> tuple[float, int]:
        return (job.epochs_done if ends_s is None else ends_s.get(job.name, 0.0)), job.arrival

    ticks = {job.name: tick for tick, job in enumerate(sorted(jobs, key=since))}
    return [replace(job, in_line_since=ticks[job.name]) for job in jobs]
