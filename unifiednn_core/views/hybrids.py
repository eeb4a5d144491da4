"""Hybrids and the line as frozen values, ready to be drawn. `in_s` counts from now, `at_s` is UTC, memory is bytes."""

from dataclasses import dataclass

from unifiednn_core.base.units import duration_text
from unifiednn_core.spec.lifecycle import ENDED, State
from unifiednn_core.spec.pooling import Pooling, PoolMode
from unifiednn_core.views.estimates import Estimate, shown_progress
from unifiednn_core.views.runs import RunView

MODES: dict[PoolMode, str] = {
    "pooled": "Each joins the hybrid that trains as soon as it fits.",
    "gathered": "They are collected, and then start as one hybrid.",
    "private": "Each gets a hybrid of its own.",
}
"""What happens to shared submissions."""


def mode_text(pooling: Pooling) -> str:
    """How submissions become hybrids, as a sentence or two."""
    when = f" That is {pooling.gather_n} submissions, or {duration_text(pooling.gather_s)} after the first."
    shared = f" Hybrids train by the policy {pooling.hybrid.policy.name}."
    return f"{pooling.mode}: {MODES[pooling.mode]}{when if pooling.mode == 'gathered' else ''}{shared}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LineEntry:
    """What waits for a device as one: a sub-model that shares, or all of a private run."""

    run_id: str
    name: str
    """Of the run."""
    mode: str
    """`hybrid`, or the kind of baseline."""
    submodels: tuple[str, ...]
    owner: str
    """"" if that is withheld."""
    place: int
    """Of the run in the one line for all devices, from 1."""
    asked: str
    """Device that it asks for: `auto`, `cuda:1`, `H200`."""
    submitted_at_s: float
    waits_for: str | None
    """Text after "waits for"; None if it starts in a moment."""
    starts_in_s: Estimate | None
    """Estimates if nobody else comes; None where nothing is known."""
    ends_in_s: Estimate | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HybridMember:
    """A sub-model that is placed in a hybrid."""

    run_id: str
    run_name: str
    name: str
    shown: str
    """Its name, or its key where another member has the same name."""
    number: int
    """Place in the hybrid, also among those that have ended; decides its colour."""
    owner: str
    state: State
    steps_done: int
    steps_total: int
    holds_device: bool
    ends_in_s: Estimate | None
    leaving: str | None
    """Why it leaves at its next step boundary; None if it stays."""

    @property
    def progress(self) -> float:
        """Share of its steps that are done, 0 to 1; below 1 until it has ended."""
        return shown_progress(self.steps_done, self.steps_total, ended=self.state in ENDED)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedHybrid:
    """A worker on a device with all that trains in it."""

    hybrid_id: str
    shared: bool
    mode: str
    device: str
    also: tuple[str, ...] = ()
    """Further devices that it holds."""
    policy: str
    now_reason: str | None
    since_s: float | None
    """When its first worker was launched."""
    memory_bytes: int | None
    peak_memory_bytes: int | None
    heartbeat_age_s: float | None
    members: tuple[HybridMember, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HybridFigures:
    """A hybrid with its turns and its memory over time."""

    hybrid: ListedHybrid
    view: RunView
    """The same as a run of all its members, ready for the charts; seconds count from its start."""
