"""Whether deadlines hold, simulated with measured speeds: before a submission is queued, and while it trains. Pure."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from unifiednn_core.base.errors import BadInput, Finding
from unifiednn_core.base.units import duration_text
from unifiednn_core.preflight.report import CheckReport
from unifiednn_core.scheduling.deadline import EarliestDeadlineFirst
from unifiednn_core.scheduling.simulator import SimulatedJob, simulate
from unifiednn_core.spec.lifecycle import ENDED, State
from unifiednn_core.spec.run import RunSpec, SubModelSpec

POLICY = EarliestDeadlineFirst()
_TITLE = "Deadline"


def findings(
    spec: RunSpec, report: CheckReport, speeds: Mapping[str, float], beside: Sequence[SimulatedJob] = ()
) -> tuple[Finding, ...]:
    """What is wrong with the deadlines of a checked spec that starts now.

    `speeds` are measured seconds per step by sub-model; `beside` are the sub-models of the run that it joins.
    """
    due = [part for part in spec.submodels if part.deadline_s is not None]
    if due and spec.policy.name != POLICY.name:
        message = f"The policy {spec.policy.name} does not look at deadlines."
        remedy = f'Choose the policy "{POLICY.name}", or leave deadlines out.'
        return (Finding(severity="warning", title=_TITLE, field="policy.name", message=message, remedy=remedy),)
    if spec.policy.name != POLICY.name:
        return ()
    asked = [_asked(part, report, speeds[part.name]) for part in spec.submodels if part.name in speeds]
    ends_s = ends_of([*beside, *asked])
    late = [job for job in asked if ends_s[job.name] > _due_s(job)]
    found = [_late(job, needed_s(job, [*beside, *asked])) for job in late]
    found += [_unknown(part) for part in due if part.name not in speeds]
    before_s = ends_of(beside)
    if any(before_s[job.name] <= _due_s(job) < ends_s[job.name] for job in beside):
        message = "Another sub-model of this run would miss its deadline."
        remedy = "Submit it as a run of its own, or with a later deadline or none."
        found.append(Finding(title=_TITLE, field=f"submodels.{spec.submodels[0].name}", message=message, remedy=remedy))
    return tuple(found)


def require_change(run: Any, rows: Sequence[Any], name: str, deadline_s: float | None, now_s: float) -> None:
    """Raise `BadInput` for a new deadline that cannot hold or that breaks another, as far as speeds are measured."""
    before = jobs_of(run, rows, now_s)
    submitted_s = next(submitted_at_s(run, row) for row in rows if row.name == name) - now_s
    due_s = None if deadline_s is None else submitted_s + deadline_s
    after = [replace(job, deadline_s=due_s) if job.name == name else job for job in before]
    was_s, ends_s = ends_of(before), ends_of(after)
    if due_s is not None and ends_s.get(name, 0.0) > due_s:
        least_s = needed_s(next(job for job in after if job.name == name), after)
        message = f"{name} would miss it: it needs about {duration_text(least_s)} from now."
        remedy = f"Give it {math.ceil(least_s - submitted_s)} s or more after its submission."
        raise BadInput.of(_TITLE, "deadline_s", message, remedy)
    if any(was_s[job.name] <= _due_s(job) < ends_s[job.name] for job in before if job.name != name):
        remedy = "Give it a later one."
        raise BadInput.of(_TITLE, "deadline_s", "Another sub-model of this run would miss its deadline.", remedy)


def needed_s(job: SimulatedJob, others: Iterable[SimulatedJob]) -> float:
    """The earliest deadline from its own on, in seconds from now, that would hold beside these others."""
    ahead = [other for other in others if other.name != job.name and _due_s(other) > 0]
    due_s, found_s = -1.0, _due_s(job)
    while found_s > due_s:
        due_s = found_s
        found_s = max(due_s, alone_left_s(job) + sum(alone_left_s(one) for one in ahead if _due_s(one) <= due_s))
    return found_s


def ends_of(jobs: Sequence[SimulatedJob]) -> dict[str, float]:
    """Seconds from now to the end of each job, earliest deadline first."""
    return {turn.submodel: turn.end_s for turn in simulate(jobs, POLICY)}


def job_of(run: Any, row: Any, now_s: float) -> SimulatedJob | None:
    """A sub-model as the simulation sees it at `now_s` (UTC); None if it does not train or is not measured."""
    rests = State(row.state) in ENDED | {State.PAUSED, State.PAUSING, State.STOPPING}
    if rests or not (row.service_s > 0 and 0 < row.steps_done < row.steps_total):
        return None
    return SimulatedJob(
        name=row.name,
        epochs=row.epochs,
        steps_per_epoch=row.steps_total // row.epochs,
        steps_done=row.steps_done,
        seconds_per_step=row.service_s / row.steps_done,
        deadline_s=None if row.deadline_s is None else due_at_s(run, row) - now_s,
    )


def jobs_of(run: Any, rows: Iterable[Any], now_s: float) -> list[SimulatedJob]:
    """The measured sub-models of a run that have not ended."""
    return [job for row in rows if (job := job_of(run, row, now_s)) is not None]


def submitted_at_s(run: Any, row: Any) -> float:
    """Moment (UTC) from which the deadline of a sub-model counts."""
    at_s: float = run.created_at_s if row.joined_at_s is None else row.joined_at_s
    return at_s


def due_at_s(run: Any, row: Any) -> float:
    """Moment (UTC) at which a sub-model with a deadline should have ended."""
    return submitted_at_s(run, row) + float(row.deadline_s)


def _due_s(job: SimulatedJob) -> float:
    return math.inf if job.deadline_s is None else job.deadline_s


def alone_left_s(job: SimulatedJob) -> float:
    """Time until a job ends if it has the device to itself."""
    return (job.epochs * job.steps_per_epoch - job.steps_done) * job.seconds_per_step


def _asked(part: SubModelSpec, report: CheckReport, seconds_per_step: float) -> SimulatedJob:
    return SimulatedJob(
        name=part.name,
        epochs=part.hyperparameters.epochs,
        steps_per_epoch=max(1, report.submodels[part.name].steps_per_epoch),
        seconds_per_step=seconds_per_step,
        deadline_s=part.deadline_s,
    )


def _late(job: SimulatedJob, least_s: float) -> Finding:
    message = f"{job.name} needs about {duration_text(least_s)}, not {duration_text(job.deadline_s)}"
    alone_s = alone_left_s(job)
    held_up = least_s > alone_s
    message += f", because others are due no later; alone it takes {duration_text(alone_s)}." if held_up else "."
    remedy = (
        f"Give it {math.ceil(least_s)} s or more, or fewer epochs{', or others later deadlines' if held_up else ''}."
    )
    return Finding(title=_TITLE, field=f"submodels.{job.name}.deadline_s", message=message, remedy=remedy)


def _unknown(part: SubModelSpec) -> Finding:
    field = f"submodels.{part.name}.deadline_s"
    message = f"The speed of {part.name} is not known before its first training here, so its deadline is not checked."
    remedy = "Train it for one epoch first, or watch on the page Run whether it will hold."
    return Finding(severity="warning", title=_TITLE, field=field, message=message, remedy=remedy)
