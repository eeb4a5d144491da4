"""What can happen to a simulated fleet, and what did."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from unifiednn_core.scheduling.line import Placement
from unifiednn_core.spec.devices import DeviceState


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A device that is drained, lost or given back."""

    at_s: float
    device: str
    state: DeviceState


@dataclass(slots=True)
class FleetTrace:
    """What happened. Seconds on the clock of the view; by key of each sub-model."""

    placed_s: dict[str, float] = field(default_factory=dict)
    """First time in a hybrid."""
    starts_s: dict[str, float] = field(default_factory=dict)
    """First turn."""
    ends_s: dict[str, float] = field(default_factory=dict)
    placements: list[tuple[float, Placement]] = field(default_factory=list)
    moved: list[str] = field(default_factory=list)
    """Keys of those that left a hybrid, as often as they did."""
    waits: Mapping[str, str] = field(default_factory=dict)
    """What those wait for that never start; texts only of a fleet that is watched."""
    plans: int = 0
