"""Fair shares of owners, by stride scheduling (Waldspurger and Weihl, 1995), as in Gandiva_fair (EuroSys 2020)."""

from dataclasses import dataclass, field
from typing import ClassVar

from unifiednn_core.base.units import duration_text
from unifiednn_core.scheduling.base import Decision, JobView, Quantum, View, require_turn


@dataclass(frozen=True, slots=True, kw_only=True)
class FairShares:
    """Let the owner with the least service per ticket train next, for `turn_s` seconds.

    Of an owner's sub-models, the lowest priority value goes first, then the earliest arrival. Raises `BadInput` for
    turns that are not above 0.
    """

    name: ClassVar[str] = "fair"
    summary: ClassVar[str] = (
        "Gives each owner the same time on the device, however many sub-models they have; an admin can give an owner "
        "more tickets. Use it when several people share."
    )
    turn_s: float = field(default=1, metadata={"valid": "a number of seconds above 0"})

    def __post_init__(self) -> None:
        require_turn(self.turn_s)

    def decide(self, view: View) -> Decision:
        """Choose the least served owner; ties go to the earlier arrival."""
        least_s = min(map(_per_ticket_s, view.jobs))
        job = min(
            (job for job in view.jobs if _per_ticket_s(job) == least_s), key=lambda job: (job.priority, job.arrival)
        )
        reason = f"The owner of {job.name} is least served: {duration_text(least_s)} for each ticket."
        return Decision(job.name, Quantum("seconds", self.turn_s), reason)

    def __str__(self) -> str:
        return f"Fair shares of owners, {self.turn_s:g} s each"


def _per_ticket_s(job: JobView) -> float:
    return job.owner_service_s / job.tickets
