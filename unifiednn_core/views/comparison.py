"""What pages and command line get to see of a comparison: arms, their figures over repeats, and the verdict."""

from dataclasses import dataclass, field
from statistics import median
from typing import Literal

Mode = Literal["hybrid", "concurrent", "sequential"]
BASELINES: tuple[Mode, ...] = ("concurrent", "sequential")


@dataclass(frozen=True, slots=True)
class Spread:
    """One figure over repeats, in the order in which they ran; never empty."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """Middle value."""
        return median(self.values)

    @property
    def low(self) -> float:
        """Least value."""
        return min(self.values)

    @property
    def high(self) -> float:
        """Greatest value."""
        return max(self.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmSubModel:
    """Figures of one sub-model in one arm. What could not be had in every repeat is None."""

    name: str
    number: int
    wait_s: Spread | None
    service_s: Spread | None
    turnaround_s: Spread | None
    """From the launch of the arm until its model was handed back."""
    cpu_s: Spread | None
    peak_memory_bytes: Spread | None
    test_accuracy: float | None
    train_loss: float | None
    state_sha256: tuple[str | None, ...]
    """Of each repeat."""
    cause: str | None = None
    """Why it failed, in the first repeat in which it did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """The same training in one way, once or several times."""

    mode: Mode
    run_ids: tuple[str, ...]
    threads: int | None = None
    """Of each process."""
    memory_bytes: Spread | None
    """Peak of all processes of the arm at one instant."""
    memory_source: str | None
    makespan_s: Spread | None
    """From the launch of its first process until the last model was handed back."""
    mean_turnaround_s: Spread | None
    cpu_s: Spread | None
    gpu_s: Spread | None
    submodels: tuple[ArmSubModel, ...]
    problem: str | None = None
    """Why its figures cannot be compared: it failed, was interrupted, paused or stopped, its repeats disagree."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The hybrid against one baseline; each ratio is hybrid / baseline, repeat by repeat."""

    mode: Mode
    memory_ratio: Spread | None
    makespan_ratio: Spread | None
    mean_turnaround_ratio: Spread | None
    cpu_seconds_ratio: Spread | None
    gpu_seconds_ratio: Spread | None
    identical_weights: bool | None
    withheld_because: str | None
    """Then all ratios are None; weights are compared wherever there are some."""
    notes: tuple[str, ...] = ()
    """What a reader should know: a ratio that straddles 1, repeats that differ much, others on the card."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A hybrid run against its baselines."""

    run_id: str
    name: str
    fingerprint: str
    hybrid: Arm
    baselines: dict[Mode, Arm] = field(default_factory=dict)
    """Those that there are, running ones among them."""
    verdicts: dict[Mode, Verdict] = field(default_factory=dict)
    """One for each baseline kind, withheld where there is no such baseline yet."""
    environment: dict[str, object] = field(default_factory=dict)
    """Machine and versions."""
