"""Whether deadlines hold, simulated with measured speeds: before a submission is queued, and while it trains. Pure."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from unifiednn_core.base.errors import Finding
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
    found = [_late(part, ends_s[part.name], asked) for part in due if ends_s.get(part.name, 0) > (part.deadline_s or 0)]
    found += [_unknown(part) for part in due if part.name not in speeds]
    before_s = ends_of(beside)
    broken = [job for job in beside if before_s[job.name] <= (job.deadline_s or 0) < ends_s[job.name]]
    if broken:
        message = "Another sub-model of this run would miss its deadline."
        remedy = "Submit it as a run of its own, or with a later deadline or none."
        found.append(Finding(title=_TITLE, field=f"submodels.{spec.submodels[0].name}", message=message, remedy=remedy))
    return tuple(found)


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


def due_at_s(run: Any, row: Any) -> float:
    """Moment (UTC) at which a sub-model with a deadline should have ended."""
    submitted_at_s: float = run.created_at_s if row.joined_at_s is None else row.joined_at_s
    return submitted_at_s + float(row.deadline_s)


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


def _late(part: SubModelSpec, end_s: float, asked: Iterable[SimulatedJob]) -> Finding:
    job = next(job for job in asked if job.name == part.name)
    alone_s = alone_left_s(job)
    by_itself = f"Alone it takes {duration_text(alone_s)}."
    message = (
        f"{part.name} would end after about {duration_text(end_s)}, not {duration_text(part.deadline_s)}. {by_itself}"
    )
    others = "" if alone_s > (part.deadline_s or 0) else ", or other sub-models later deadlines"
    remedy = f"Give it {math.ceil(end_s)} s or more, or fewer epochs{others}."
    return Finding(title=_TITLE, field=f"submodels.{part.name}.deadline_s", message=message, remedy=remedy)


def _unknown(part: SubModelSpec) -> Finding:
    field = f"submodels.{part.name}.deadline_s"
    message = f"The speed of {part.name} is not known before its first training here, so its deadline is not checked."
    remedy = "Train it for one epoch first, or watch on the page Run whether it will hold."
    return Finding(severity="warning", title=_TITLE, field=field, message=message, remedy=remedy)
