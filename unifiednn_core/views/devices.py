"""Devices as values for pages and terminals."""

from dataclasses import asdict, dataclass

from unifiednn_core.machine.processes import OtherProcess as OtherProcess
from unifiednn_core.spec.devices import DeviceState
from unifiednn_core.store.devices import LISTED_S
from unifiednn_core.store.nodes import CLUSTER, NodeRow

NOW = ("total_bytes", "own_bytes", "free_bytes", "utilisation", "temperature_c", "power_w", "load", "others")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceChoice:
    """What a spec can ask for."""

    name: str
    kind: str
    """Model, and what else decides about bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedDevice:
    """A device, for operators."""

    name: str
    type: str
    kind: str
    host: str
    uuid: str | None
    state: DeviceState
    total_bytes: int | None
    """None if it is not known."""
    limit_bytes: int | None
    """Most that may be used of it, as an operator set it; None is all."""
    threads: int
    cpus: tuple[int, ...]
    """Numbers of its cores; empty means all."""
    seen_at_s: float
    """When the server last saw it, to within half a minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedNode:
    """A machine that offers devices beside the server's own, for operators."""

    name: str
    state: str
    why: str
    """Why it is not ready; empty if it is, and where the whole cluster is away."""
    devices: int | None
    """How many it has; None before it has said so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedCluster:
    """A Ray cluster, for operators."""

    why: str
    """Why it cannot be reached, as a sentence; empty if it can."""
    dashboard: str
    """Host and port of Ray's own dashboard; empty without one."""
    nodes: tuple[ListedNode, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UseOverTime:
    """Use of a device over the last minutes; each value is a mean, None where there is no sample."""

    before_s: tuple[float, ...] = ()
    """Seconds before now, the oldest first."""
    utilisation: tuple[float | None, ...] = ()
    memory: tuple[float | None, ...] = ()
    """Share in use by everybody, 0 to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCard:
    """A device as it is used now. None is not available, or not for this person."""

    name: str
    type: str
    kind: str
    state: DeviceState
    total_bytes: int | None
    own_bytes: int | None = None
    """Of hybrids."""
    free_bytes: int | None = None
    utilisation: float | None = None
    """Share of time in which some kernel ran, or of the cores that were busy; 0 to 1."""
    temperature_c: float | None = None
    power_w: float | None = None
    load: float | None = None
    """Of a CPU: processes that want a core, as a mean over the last minute."""
    others: tuple[OtherProcess, ...] = ()
    """Processes that are none of ours, those that use most first."""
    over_time: UseOverTime = UseOverTime()

    @property
    def model(self) -> str:
        """Name of the chip alone."""
        return self.kind.partition(",")[0]

    @property
    def used_bytes(self) -> int | None:
        """In use by everybody."""
        if self.total_bytes is None or self.free_bytes is None:
            return None
        return max(0, self.total_bytes - self.free_bytes)

    @property
    def others_bytes(self) -> int | None:
        """In use by other programs."""
        return None if self.used_bytes is None or self.own_bytes is None else max(0, self.used_bytes - self.own_bytes)


def cluster_of(rows: list[NodeRow], now_s: float) -> ListedCluster:
    """The cluster and its nodes, without those that are away for more than a day; nothing where there is none."""
    known = {row.name: row for row in rows}
    head = known.pop(CLUSTER, None) or NodeRow(why="", facts={})
    nodes = tuple(
        ListedNode(name=row.name, state=row.state, why=row.why.removeprefix(head.why), devices=row.facts.get("devices"))
        for row in known.values()
        if row.state != "away" or now_s - row.seen_at_s <= LISTED_S
    )
    return ListedCluster(why=head.why, dashboard="" if head.why else head.facts.get("dashboard") or "", nodes=nodes)


def device_document(device: ListedDevice, card: DeviceCard | None) -> dict[str, object]:
    """One device of `unifiednn devices --json`, with the figures of this moment; `now` is null where there are none."""
    figures = None if card is None else {name: value for name, value in asdict(card).items() if name in NOW}
    return {**asdict(device), "now": figures}
