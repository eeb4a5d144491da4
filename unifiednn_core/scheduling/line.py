"""What placement sees and what it answers: frozen values, without torch, without names of people in any sentence."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from unifiednn_core.spec.devices import DeviceState
from unifiednn_core.spec.pooling import PoolMode
from unifiednn_core.spec.sharing import SharingRule

COMPANY_SHARE = 0.1
"""What sub-models that step at once may add to the peak of one at a time, as a share of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Memory of one sub-model on one type of device, in bytes (`preflight.estimate.need_of`)."""

    kept_bytes: int
    """From its first step to its end: weights and optimizer state, on a GPU gradients, too."""
    working_bytes: int
    """More while it steps, with what the allocator keeps."""
    copies_bytes: int = 0
    """Copies on the host while its checkpoint is written."""
    slack_bytes: int = 0
    """Part of `working_bytes` that the allocator keeps between steps, into which copies fit."""
    company_bytes: int = 0
    """What its steps add while another one steps."""
    data: Mapping[str, int] = field(default_factory=dict)
    """Resident bytes of each data set, by content hash."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """One entry of the line: what is placed as one. A shared submission has one for each network."""

    keys: tuple[str, ...]
    """Its sub-models: one, or all open ones of a private run."""
    run_id: str
    submitted_at_s: float
    arrival: int
    asked: str
    """Device in the words of the spec: `auto`, `cuda`, `cuda:1`, `H200`."""
    devices: frozenset[str]
    """Names of the devices that match what it asks and the kind that it must stay on, all of one type."""
    kind: str | None = None
    """Kind of device that it must stay on."""
    private: bool
    """Whether it needs a hybrid of its own."""
    people: tuple[str, ...] = ()
    need: Need | None = None
    """Of one sub-model; None if unknown."""
    peak_bytes: int | None = None
    """Predicted peak of a private hybrid with its context, under its own policy; None to count its need."""
    claims: int = 1
    """Devices of one kind that it needs at once; more than one only of a private run."""
    threads: int | None = None
    """None: as many as the device gives. Only on a CPU do they decide which hybrid it may join."""
    profile: str = "exact"
    left_s: float | None = None
    """Predicted seconds of service left; None if unknown."""
    line_at_s: float | None = None
    """Its place in the line, where an operator moved it; None is its submission."""

    @property
    def order(self) -> tuple[float, int]:
        """What the line is ordered by."""
        return self.submitted_at_s if self.line_at_s is None else self.line_at_s, self.arrival


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """An open sub-model of a hybrid."""

    key: str
    run_id: str
    devices: frozenset[str]
    """Names of the devices on which it could go on from its checkpoint, its own included."""
    people: tuple[str, ...] = ()
    need: Need | None = None
    left_s: float | None = None
    moved_at_s: float | None = None
    """When it came from another hybrid; None if this is its first."""
    leaving: bool = False
    """Whether it has been told to leave."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HybridView:
    """A hybrid that holds a device, with its open members."""

    id: str
    device: str
    also: tuple[str, ...] = ()
    """Further devices that it holds."""
    private: bool
    accepts: bool = True
    """Whether newcomers may join it: not if it is private, was gathered, or ends."""
    threads: int
    profile: str
    members: tuple[Placed, ...]
    peak_bytes: int | None = None
    """Predicted peak under its own policy, of a private one; shared ones follow from their members."""
    used_bytes: int | None = None
    """What its worker holds now; None counts as all that is predicted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceView:
    """One device."""

    name: str
    type: str
    """`cpu` or `cuda`."""
    kind: str = ""
    """What moves keep to: the name of the GPU, or the instruction set."""
    total_bytes: int | None
    """Memory that hybrids may use, under the operator's limit; None if unknown."""
    free_bytes: int | None
    """Free now, next to all processes; None if unknown."""
    pool: str = ""
    """Devices with the same one draw on the same free bytes, as the logical CPUs of a host do; empty: its own."""
    context_bytes: int = 0
    """A worker there before its first sub-model."""
    threads: int = 1
    state: DeviceState = "ready"
    resting: bool = False
    """Whether nothing can be placed there for a moment, because its hybrid starts or waits after a death."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetView:
    """All that placement sees."""

    now_s: float
    devices: tuple[DeviceView, ...]
    hybrids: tuple[HybridView, ...] = ()
    """At most one for each device."""
    waiting: tuple[Waiting, ...] = ()
    rule: SharingRule = field(default_factory=SharingRule)
    mode: PoolMode = "pooled"
    gather_s: float = 60.0
    gather_n: int = 4
    lanes: int = 1
    """Lanes of shared hybrids."""
    move_cost_s: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Sub-models that start on a device, in a new hybrid or in the one that trains there."""

    keys: tuple[str, ...]
    device: str
    also: tuple[str, ...] = ()
    """Further devices that it takes."""
    hybrid_id: str | None
    """None: a new hybrid."""
    private: bool
    threads: int
    profile: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A sub-model that leaves its hybrid at the next step boundary; it is placed again from the line."""

    key: str
    hybrid_id: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to do now. Reasons and waits hold figures of devices only, no names of people, runs or networks."""

    placements: tuple[Placement, ...] = ()
    moves: tuple[Move, ...] = ()
    waits: Mapping[str, str] = field(default_factory=dict)
    """By key of each sub-model that still waits: what for, as text after "waits for"."""


def in_order(waiting: Iterable[Waiting]) -> list[Waiting]:
    """The line."""
    return sorted(waiting, key=lambda entry: entry.order)
