"""The contract of a policy: `decide(view) -> Decision`, pure, with no torch and no memory of its own.

The engine asks when a quantum ends and whenever the set of runnable sub-models changes (one arrives, is paused,
resumed, stopped or edited), so a policy needs no event hooks. Same view, same decision.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

QuantumKind = Literal["completion", "epochs", "steps", "seconds"]


@dataclass(frozen=True, slots=True)
class Quantum:
    """For how long a sub-model may hold the device. Seconds are rounded up to a whole step."""

    kind: QuantumKind
    amount: float = 0

    def __post_init__(self) -> None:
        if self.kind != "completion" and not self.amount > 0:
            raise ValueError(f"a quantum needs a positive number of {self.kind}, not {self.amount}")

    def __str__(self) -> str:
        return "to completion" if self.kind == "completion" else f"{self.amount:g} {self.kind}"


TO_COMPLETION = Quantum("completion")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """What a policy may know of one runnable sub-model."""

    name: str
    arrival: int
    """Place in the order of arrival, from 0."""
    in_line_since: int
    """Tick at which it last joined the line: on arrival, at the end of its last quantum, on resume."""
    priority: int
    """Lower goes first."""
    parameters: int
    epochs: int
    epochs_done: int
    steps_total: int
    steps_done: int
    seconds_per_step: float | None
    """Measured mean; None before its first step."""
    waiting_s: float
    """Time in line so far, without pauses."""


@dataclass(frozen=True, slots=True)
class View:
    """All sub-models that could train now, in order of arrival; never empty."""

    jobs: tuple[JobView, ...]
    now_s: float


@dataclass(frozen=True, slots=True)
class Decision:
    """Who trains next, for how long, and the sentence that the operator reads."""

    job: str
    quantum: Quantum
    reason: str


class Policy(Protocol):
    """A frozen dataclass of its parameters with one method."""

    name: ClassVar[str]
    """Name in a spec."""
    summary: ClassVar[str]
    """One sentence for the policy card: what it does and when to use it."""

    def decide(self, view: View) -> Decision:
        """Choose among `view.jobs`."""
        ...


def next_in_line(jobs: tuple[JobView, ...]) -> JobView:
    """Job that has been in line longest; the earlier arrival where two joined at once."""
    return min(jobs, key=lambda job: (job.in_line_since, job.arrival))
