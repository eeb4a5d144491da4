"""Round robin (Section "Trainer" of the UnifiedNN paper); quanta of steps and seconds are ours."""

import math
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from unifiednn_core.base.errors import BadInput
from unifiednn_core.scheduling.base import Decision, Quantum, View, next_in_line


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRobin:
    """Let all sub-models take turns of `amount` epochs (as published), steps or seconds.

    Turns of epochs favour sub-models with long epochs; turns of seconds, rounded up to a whole step, are equal. Raises
    `BadInput` for an `amount` that is not above 0, or not whole for epochs and steps.
    """

    name: ClassVar[str] = "round_robin"
    summary: ClassVar[str] = (
        "All sub-models take turns of some epochs, steps or seconds. All make progress from the start; each "
        "takes longer than alone."
    )
    unit: Literal["epochs", "steps", "seconds"] = "epochs"
    amount: float = field(default=1, metadata={"valid": "a number above 0, whole for epochs and steps"})

    def __post_init__(self) -> None:
        fractions = self.unit == "seconds"
        if not 0 < self.amount < math.inf or not (fractions or self.amount == int(self.amount)):
            remedy = f"Give a {'' if fractions else 'whole '}number of {self.unit} above 0."
            raise BadInput.of("Amount", "policy.amount", f"A turn cannot be {self.amount:g} {self.unit}.", remedy)

    def decide(self, view: View) -> Decision:
        """Choose the sub-model that has been in line longest."""
        chosen = next_in_line(view.jobs)
        reason = f"{chosen.name} has been in line longest; {self._turn} each."
        return Decision(chosen.name, Quantum(self.unit, self.amount), reason)

    @property
    def _turn(self) -> str:
        number = f"{int(self.amount):,}" if self.amount == int(self.amount) else f"{self.amount:g}"
        return f"{number} {self.unit.removesuffix('s') if self.amount == 1 else self.unit}"

    def __str__(self) -> str:
        return f"Round robin, {self._turn} each"
