"""Which devices of a Ray cluster to reserve, offer and give back. Pure; `ray_watch` asks Ray and enacts."""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Literal

from unifiednn_core.spec.devices import CPU, CUDA, own_name
from unifiednn_core.spec.placement import devices_claimed
from unifiednn_core.store.schema import HYBRID, RunRow

GRANT_S = 30.0
"""A reservation that Ray has not granted by then is withdrawn: others use that GPU. A grant takes about 6 s."""
REST_S = 60.0
"""How long a node is left alone after that."""
PREFIX = "unifiednn"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingNode:
    """A node that lives, as Ray describes it."""

    id: str
    host: str
    """Name of its agent."""
    resource: Literal["GPU", "CPU"]
    """What is reserved there: GPUs one by one, or all CPUs of a node without GPUs."""
    units: int
    """How many reservations it has room for."""
    amount: float = 1
    """Of the resource, in each of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """One reservation, a placement group of Ray with one bundle."""

    node: str
    number: int
    since_s: float
    """When it was asked for; once granted, when its devices were last in use."""
    devices: frozenset[str] | None = None
    """Names of its devices in the store; None until Ray has granted it."""
    withdrawn: bool = False
    """Whether its devices are not offered any more, because they were idle."""

    @property
    def name(self) -> str:
        """Name of the placement group."""
        return f"{PREFIX}/{self.node}/{self.number}"

    @classmethod
    def named(cls, name: str, since_s: float) -> "Reservation | None":
        """The group of this name, found after a restart; None if it is somebody else's."""
        prefix, _, rest = name.partition("/")
        node, _, number = rest.rpartition("/")
        return cls(node=node, number=int(number), since_s=since_s) if prefix == PREFIX and number.isdecimal() else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """What the watcher sees at one moment."""

    now_s: float
    """By the monotonic clock."""
    nodes: Sequence[TrainingNode]
    waits: Mapping[str, int]
    """Run ids that wait, with the number of devices that each could use now."""
    used: AbstractSet[str] = frozenset()
    """Names of the devices that hybrids hold."""
    ready: AbstractSet[str] = frozenset()
    """Names of the devices on which something may be placed now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservations:
    """All reservations, and what they could not satisfy."""

    groups: tuple[Reservation, ...] = ()
    short: int = 0
    """Devices that what waits could use, and that no node of the cluster has free."""
    resting: Mapping[str, float] = field(default_factory=dict)
    """Nodes on which no device was free, with the time until which they are left alone."""
    unserved: frozenset[str] = frozenset()
    """Runs for which devices stayed idle: they wait for something else."""

    def offered(self, node: str) -> frozenset[str]:
        """Devices of a node on which something may be placed."""
        mine = (group for group in self.groups if group.node == node and not group.withdrawn)
        return frozenset(name for group in mine for name in group.devices or ())


def demand_of(runs: Iterable[RunRow], device_type: str) -> dict[str, int]:
    """Devices of a type that each waiting run could use.

    A private run needs what it claims. All shared ones need one device together: what does not fit there still waits
    afterwards, and asks again.
    """
    needs: dict[str, int] = {}
    shared_waits = False
    for run in runs:
        asked = own_name(run.device).lower()
        if asked.startswith(CUDA if device_type == CPU else CPU):
            continue
        if run.shared:
            needs[run.id] = 0 if shared_waits else 1
            shared_waits = True
        else:
            needs[run.id] = devices_claimed(run.spec["submodels"]) if run.mode == HYBRID else 1
    return needs


def next_plan(plan: Reservations, seen: ClusterView, idle_s: float) -> Reservations:
    """Advance all reservations: give back what was idle for `idle_s`, and ask for what waiting runs could use."""
    alive = {node.id for node in seen.nodes}
    resting = {node: until_s for node, until_s in plan.resting.items() if until_s > seen.now_s}
    unserved = plan.unserved & set(seen.waits)
    kept: list[Reservation] = []
    for group in plan.groups:
        if group.node not in alive:
            continue
        if group.devices is None:
            if seen.now_s - group.since_s < GRANT_S:
                kept.append(group)
            else:
                resting[group.node] = seen.now_s + REST_S
        elif group.devices & seen.used:
            kept.append(replace(group, since_s=seen.now_s, withdrawn=False))
        elif not group.withdrawn:
            idle = seen.now_s - group.since_s >= idle_s
            unserved |= set(seen.waits) if idle else set()
            kept.append(replace(group, withdrawn=idle))
        elif group.devices & seen.ready:  # its agent has not heard of it yet
            kept.append(group)
    free = [group for group in kept if not (group.devices or frozenset()) & seen.used]
    demand = sum(count for run_id, count in seen.waits.items() if run_id not in unserved)
    if demand:  # perhaps for those that were about to go
        kept = [replace(group, since_s=seen.now_s, withdrawn=False) if group.withdrawn else group for group in kept]
    short = demand - len(free)
    for node in seen.nodes:
        taken = {group.number for group in kept if group.node == node.id}
        numbers = [number for number in range(node.units) if number not in taken]
        asked = [] if node.id in resting else numbers[: max(0, short)]
        kept += [Reservation(node=node.id, number=number, since_s=seen.now_s) for number in asked]
        short -= len(asked)
    return Reservations(groups=tuple(kept), short=max(0, short), resting=resting, unserved=unserved)
