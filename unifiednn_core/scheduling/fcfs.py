"""First come, first served (Section "Trainer" of the UnifiedNN paper)."""

from dataclasses import dataclass
from typing import ClassVar

from unifiednn_core.scheduling.base import TO_COMPLETION, Decision, View


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstComeFirstServed:
    """Train in the order of arrival, each sub-model to completion."""

    name: ClassVar[str] = "fcfs"
    summary: ClassVar[str] = (
        "Trains in the order of arrival, each sub-model to completion. None is overtaken; short ones wait "
        "behind long ones."
    )

    def decide(self, view: View) -> Decision:
        """Choose the earliest arrival."""
        first = min(view.jobs, key=lambda job: job.arrival)
        return Decision(first.name, TO_COMPLETION, f"{first.name} arrived first.")

    def __str__(self) -> str:
        return "First come, first served"
