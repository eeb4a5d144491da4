"""Finish-time fairness (Themis, NSDI 2020), for one device."""

import math
from dataclasses import dataclass, field
from typing import ClassVar

from unifiednn_core.scheduling.base import Decision, JobView, Quantum, View, probe, require_turn


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishTime:
    """Train the sub-model that sharing delays most, for `turn_s` seconds; those without a measurement are tried first.

    Its delay is rho = (waiting + service + left) / (time alone * number of sub-models): up to 1 it ends no later than
    with an equal part of the device. Raises `BadInput` for turns that are not above 0.
    """

    name: ClassVar[str] = "finish_time"
    summary: ClassVar[str] = (
        "Trains the sub-model that sharing delays most, relative to its time alone. Short ones are not held up by "
        "long ones, and none is forgotten."
    )
    turn_s: float = field(default=1, metadata={"valid": "a number of seconds above 0"})

    def __post_init__(self) -> None:
        require_turn(self.turn_s)

    def decide(self, view: View) -> Decision:
        """Choose the highest rho; ties go to the earlier arrival."""
        first = probe(view)
        if first is not None:
            return first
        tenants = len(view.jobs)
        job = min(view.jobs, key=lambda job: (-rho(job, tenants), job.arrival))
        reason = f"{job.name} would end latest: after {rho(job, tenants):.2f} times its fair share of the time."
        return Decision(job.name, Quantum("seconds", self.turn_s), reason)

    def __str__(self) -> str:
        return f"Finish-time fairness, {self.turn_s:g} s each"


def rho(job: JobView, tenants: int) -> float:
    """Time from arrival to end if it trained alone from now on, by its time with one of `tenants` equal parts."""
    alone_s = job.steps_total * (job.seconds_per_step or 0.0) * tenants
    return (job.waiting_s + job.service_s + (job.left_s or 0.0)) / alone_s if alone_s else math.inf
