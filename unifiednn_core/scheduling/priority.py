"""Priority scheduling (Section "Trainer" of the UnifiedNN paper)."""

from dataclasses import dataclass
from typing import ClassVar

from unifiednn_core.scheduling.base import TO_COMPLETION, Decision, Quantum, View, next_in_line


@dataclass(frozen=True, slots=True, kw_only=True)
class Priority:
    """Train the lowest priority value first; equal values take turns, one epoch each.

    A lower value that arrives takes over at the next step. High values may wait long: waiting raises no priority.
    """

    name: ClassVar[str] = "priority"
    summary: ClassVar[str] = (
        "Trains the lowest priority value first; equal values take turns, one epoch each. Use it when some "
        "results are urgent."
    )

    def decide(self, view: View) -> Decision:
        """Choose the lowest value: to completion if it is the only one, else round robin by epoch."""
        lowest = min(job.priority for job in view.jobs)
        equals = tuple(job for job in view.jobs if job.priority == lowest)
        chosen = next_in_line(equals)
        if len(equals) == 1:
            reason = f"{chosen.name} has priority {lowest}, the lowest value waiting."
            return Decision(chosen.name, TO_COMPLETION, reason)
        reason = f"{chosen.name} has been in line longest of {len(equals)} with priority {lowest}; 1 epoch each."
        return Decision(chosen.name, Quantum("epochs", 1), reason)

    def __str__(self) -> str:
        return "Priority"
