"""Shortest job first (Section "Trainer" of the UnifiedNN paper); `by="time"` is ours."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from unifiednn_core.base.units import duration_text
from unifiednn_core.scheduling.base import TO_COMPLETION, Decision, View, probe


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
            first = probe(view)
            if first is not None:
                return first
            job = min(by_arrival, key=lambda job: job.left_s or 0.0)
            reason = f"{job.name} has the least time left: about {duration_text(job.left_s or 0.0)}."
        return Decision(job.name, TO_COMPLETION, reason)

    def __str__(self) -> str:
        return f"Shortest job first, by {self.by}"
