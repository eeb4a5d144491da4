"""Earliest deadline first (Liu and Layland, 1973)."""

import math
from dataclasses import dataclass
from typing import ClassVar

from unifiednn_core.base.units import duration_text
from unifiednn_core.scheduling.base import TO_COMPLETION, Decision, JobView, Quantum, View


@dataclass(frozen=True, slots=True, kw_only=True)
class EarliestDeadlineFirst:
    """Train the sub-model that is due first; then those without a deadline, or past it, in order of arrival.

    If any order holds all deadlines, this one does. An earlier one that arrives takes over at the next step.
    """

    name: ClassVar[str] = "deadline"
    summary: ClassVar[str] = (
        "Trains the sub-model that is due first. A submission whose deadline cannot hold, or that would break another "
        "one, is refused before it is queued."
    )

    def decide(self, view: View) -> Decision:
        """Choose the earliest deadline ahead."""

        def due_s(job: JobView) -> float:
            ahead = job.deadline_s is not None and job.deadline_s > view.now_s
            return job.deadline_s if ahead and job.deadline_s is not None else math.inf

        job = min(view.jobs, key=lambda job: (due_s(job), job.arrival))
        left_s = due_s(job) - view.now_s
        if left_s == math.inf:
            return Decision(job.name, TO_COMPLETION, f"{job.name} arrived first; nobody has a deadline ahead.")
        return Decision(job.name, Quantum("seconds", left_s), f"{job.name} is due first: in {duration_text(left_s)}.")

    def __str__(self) -> str:
        return "Earliest deadline first"
