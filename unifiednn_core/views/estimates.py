"""When something begins or ends: the likely moment, and a range around it. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, astuple, dataclass, field
from typing import Any, Literal

Basis = Literal["measured", "timed", "relative"]
"""Where the seconds are from: earlier trainings, the check, or nowhere; then only their ratios mean anything."""
MOST_PROGRESS = 0.99
"""Progress that is shown before the last file is written."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Seconds from now; `low_s` <= `likely_s` <= `high_s`."""

    likely_s: float
    low_s: float
    high_s: float

    @classmethod
    def around(cls, likely_s: float, spread: float) -> "Estimate":
        """A range of some share of the likely value on both sides."""
        return cls(likely_s, likely_s * max(0.0, 1 - spread), likely_s * (1 + spread))


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptForecast:
    """The forecast that a run keeps, to be compared with what happens."""

    policy: str
    finish_s: Mapping[str, float]
    """By sub-model, from the launch of the run."""
    makespan_s: float
    mean_turnaround_s: float
    basis: Basis
    step_s: Mapping[str, float] = field(default_factory=dict)
    """Seconds per step alone that it assumes, by sub-model."""
    renewed: bool = False
    """Whether it was made again when somebody changed the run."""

    @property
    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {**asdict(self), "finish_s": dict(self.finish_s), "step_s": dict(self.step_s)}


def earliest(estimates: Iterable[Estimate]) -> Estimate | None:
    """When the first of several happens; None without any."""
    known = list(estimates)
    return Estimate(*map(min, zip(*map(astuple, known), strict=True))) if known else None


def latest(estimates: Iterable[Estimate]) -> Estimate | None:
    """When the last of several happens; None without any."""
    known = list(estimates)
    return Estimate(*map(max, zip(*map(astuple, known), strict=True))) if known else None


def shown_progress(done: int, total: int, *, ended: bool) -> float:
    """Share of the steps that are done, 0 to 1; below 1 until everything has ended, the last file included."""
    share = done / total if total else 0.0
    return share if ended else min(share, MOST_PROGRESS)
