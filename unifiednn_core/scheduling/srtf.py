"""Shortest remaining time first (Schrage, 1968), by measured speed and with hysteresis."""

from dataclasses import dataclass, field
from typing import ClassVar

from unifiednn_core.base.errors import BadInput
from unifiednn_core.base.units import duration_text
from unifiednn_core.scheduling.base import TO_COMPLETION, Decision, JobView, Quantum, View, probe

AGAIN = Quantum("seconds", 10)
"""Speeds are compared again after this time; arrivals and ends are seen at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortestRemainingTime:
    """Train the sub-model with the least measured time left; those without a measurement are tried first.

    The one that trained last gives way only to one that is shorter by the share `hysteresis`, because measured speeds
    waver. Raises `BadInput` for a share outside 0 to 1.
    """

    name: ClassVar[str] = "srtf"
    summary: ClassVar[str] = (
        "Trains the sub-model with the least time left, as measured; each is tried for a few steps first. The lowest "
        "mean turnaround of all policies; long ones wait."
    )
    hysteresis: float = field(default=0.1, metadata={"valid": "a share from 0 to below 1"})

    def __post_init__(self) -> None:
        if not 0 <= self.hysteresis < 1:
            message = f"One cannot be shorter by the share {self.hysteresis:g}."
            raise BadInput.of("Hysteresis", "policy.hysteresis", message, "Give a share from 0 to below 1.")

    def decide(self, view: View) -> Decision:
        """Choose the shortest, or the one that trained last if that is hardly longer."""
        first = probe(view)
        if first is not None:
            return first
        by_arrival = sorted(view.jobs, key=lambda job: job.arrival)  # min() keeps the first of equals
        job, last = min(by_arrival, key=_left_s), _trained_last(view)
        if last is not None and _left_s(job) >= (1 - self.hysteresis) * _left_s(last):
            job = last
        reason = f"{job.name} has the least time left: about {duration_text(_left_s(job))}."
        return Decision(job.name, TO_COMPLETION if len(view.jobs) == 1 else AGAIN, reason)

    def __str__(self) -> str:
        return "Shortest remaining time first"


def _trained_last(view: View) -> JobView | None:
    at_work = [job for job in view.jobs if job.name in view.at_work]
    if at_work:
        return min(at_work, key=_left_s)
    return max((job for job in view.jobs if job.service_s), key=lambda job: job.in_line_since, default=None)


def _left_s(job: JobView) -> float:
    return job.left_s or 0.0
