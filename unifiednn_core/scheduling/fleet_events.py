"""What can happen to a simulated fleet, and what did."""

from collections import defaultdict
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


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetFailure:
    """Devices that die at once with what trains there: it goes on elsewhere from its last checkpoints."""

    at_s: float
    devices: tuple[str, ...]
    back_s: float
    """When they can be used again."""


@dataclass(frozen=True, slots=True)
class HeldDevices:
    """A hybrid that had devices."""

    begin_s: float
    end_s: float
    devices: int


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
    """What those wait for that never start."""
    service_s: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Seconds of all turns that have ended."""
    lost_s: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Those of them that failures took."""
    held: list[HeldDevices] = field(default_factory=list)
    deaths: int = 0
    """Hybrids that failures ended."""
    plans: int = 0
    turns: int = 0
