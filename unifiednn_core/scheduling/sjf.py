"""Shortest job first (Section "Trainer" of the UnifiedNN paper); `by="time"` is ours."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from unifiednn_core.base.units import duration_text
from unifiednn_core.scheduling.base import TO_COMPLETION, Decision, JobView, Quantum, View

PROBE = Quantum("steps", 3)
"""Quantum that measures the speed of a sub-model: one step to warm up, two that count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortestJobFirst:
    """Train the shortest sub-model first, to completion; ties go to the earlier arrival.

    Length is the number of weights or of epochs (both as published), or the measured time left. A shorter one that
    arrives takes over at the next step.
    """

    name: ClassVar[str] = "sjf"
    summary: ClassVar[str] = (
        "Trains the shortest sub-model first, to completion: by weights, by epochs or by measured time left. "
        "Mean turnaround is low; long ones wait."
    )
    by: Literal["parameters", "epochs", "time"] = "parameters"

    def decide(self, view: View) -> Decision:
        """Choose the shortest; by time, measure those without a measurement first, in a few steps."""
        by_arrival = sorted(view.jobs, key=lambda job: job.arrival)  # min() keeps the first of equals
        if self.by == "parameters":
            job = min(by_arrival, key=lambda job: job.parameters)
            reason = f"{job.name} is the smallest: {job.parameters:,} weights."
        elif self.by == "epochs":
            job = min(by_arrival, key=lambda job: job.epochs)
            reason = f"{job.name} asks for the fewest epochs: {job.epochs:,}."
        else:
            unmeasured = [job for job in by_arrival if job.seconds_per_step is None]
            if unmeasured:
                name = unmeasured[0].name
                return Decision(name, PROBE, f"{name} is not measured yet; {PROBE} show its speed.")
            job = min(by_arrival, key=_time_left_s)
            reason = f"{job.name} has the least time left: about {duration_text(_time_left_s(job))}."
        return Decision(job.name, TO_COMPLETION, reason)

    def __str__(self) -> str:
        return f"Shortest job first, by {self.by}"


def _time_left_s(job: JobView) -> float:
    return (job.steps_total - job.steps_done) * (job.seconds_per_step or 0.0)
