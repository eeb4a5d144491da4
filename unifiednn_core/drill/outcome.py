"""What came of an exercise, and of many: values that can be added up."""

from collections import Counter
from dataclasses import dataclass, field, fields

KILLS = ("sigkill", "sigterm")


@dataclass(slots=True)
class Outcome:
    """Counts of one exercise or of many."""

    exercises: int = 0
    recovered: int = 0
    """Exercises that came to their end by themselves."""
    struck: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Faults that struck, by place and action."""
    unplanned_deaths: int = 0
    recovery_s: list[float] = field(default_factory=list)
    """From the death of a worker to the first recorded step of the next; forked workers."""
    fresh_recovery_s: list[float] = field(default_factory=list)
    """The same where the next worker was a new interpreter."""
    redone_steps: list[int] = field(default_factory=list)
    """Recorded steps that were trained again, for each attempt after the first."""
    acknowledged: int = 0
    refused: int = 0
    lost_commands: int = 0
    commands_applied_twice: int = 0
    steps: int = 0
    steps_twice: int = 0
    steps_missing: int = 0
    other_losses: int = 0
    """Steps with another loss than in the uninterrupted training."""
    stores_checked: int = 0
    unreadable_stores: int = 0
    submodels: int = 0
    other_bits: int = 0
    """Sub-models that did not come out as without faults."""
    damaged: int = 0
    damage_untold: int = 0
    """Damaged checkpoints that no event of the run speaks of."""
    clock_jumps: int = 0
    downloads: int = 0
    broken_downloads: int = 0
    problems: list[str] = field(default_factory=list)
    """What was not as promised, in words."""
    kept: list[str] = field(default_factory=list)
    """Folders to look into."""

    @property
    def kills(self) -> int:
        """Processes that were killed; a worker and a server at once count as one."""
        return sum(count for (_, action), count in self.struck.items() if action in KILLS)

    @property
    def passed(self) -> bool:
        """Whether everything was as promised."""
        return not self.problems and self.recovered == self.exercises

    def add(self, other: "Outcome") -> None:
        """Add the counts of another."""
        for part in fields(self):
            own, more = getattr(self, part.name), getattr(other, part.name)
            setattr(self, part.name, own + more)
