"""Least attained service in discrete queues (Tiresias, NSDI 2019), for one device."""

import math
from bisect import bisect
from dataclasses import dataclass, field
from typing import ClassVar

from unifiednn_core.base.errors import BadInput
from unifiednn_core.base.units import duration_text
from unifiednn_core.scheduling.base import TO_COMPLETION, Decision, JobView, Quantum, View


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastAttainedService:
    """Train the sub-model in the lowest queue, in order of arrival; its service so far decides its queue.

    Queues end at `first_queue_s`, at `second_queue_s` and never. Raises `BadInput` for limits that do not rise from 0.
    """

    name: ClassVar[str] = "las"
    summary: ClassVar[str] = (
        "Trains what has had the least time so far, in three queues: up to a minute, up to ten, and longer. Short "
        "ones end soon, and nothing has to be known before."
    )
    first_queue_s: float = field(default=60, metadata={"valid": "a number of seconds above 0"})
    second_queue_s: float = field(default=600, metadata={"valid": "a number of seconds above first_queue_s"})

    def __post_init__(self) -> None:
        if not 0 < self.first_queue_s < self.second_queue_s < math.inf:
            message = f"Queues cannot end after {self.first_queue_s:g} and {self.second_queue_s:g} s."
            raise BadInput.of("Queues", "policy.second_queue_s", message, "Give two numbers that rise from above 0.")

    def decide(self, view: View) -> Decision:
        """Choose the earliest arrival in the lowest queue, until it leaves that queue."""
        job = min(view.jobs, key=lambda job: (self.queue(job), job.arrival))
        had, at = f"{job.name} has had {duration_text(job.service_s)}", self.queue(job)
        if at == 2:
            return Decision(
                job.name, TO_COMPLETION, f"{had}, and arrived first; all had {self.second_queue_s:g} s or more."
            )
        end_s = (self.first_queue_s, self.second_queue_s)[at]
        reason = f"{had}, less than {end_s:g} s, and arrived first of those."
        return Decision(job.name, Quantum("seconds", end_s - job.service_s), reason)

    def queue(self, job: JobView) -> int:
        """0, 1 or 2; the lowest goes first."""
        return bisect((self.first_queue_s, self.second_queue_s), job.service_s)

    def __str__(self) -> str:
        return f"Least attained service, queues of {self.first_queue_s:g} s, {self.second_queue_s:g} s and longer"
