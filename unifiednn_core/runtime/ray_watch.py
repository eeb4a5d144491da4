"""Watches the nodes of a Ray cluster: an agent on each, devices reserved while there is work, dead nodes declared lost.

It decides nothing about training: placement does, and agents start workers. While it is away, agents and workers go on;
only nodes that come or die, and devices that idle, go unnoticed.
"""

import logging
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from unifiednn_core.base.clock import Clock
from unifiednn_core.base.trouble import log_error
from unifiednn_core.runtime.ray_plan import ClusterView, Reservation, Reservations, TrainingNode, demand_of, next_plan
from unifiednn_core.spec.devices import CPU, CUDA, host_of
from unifiednn_core.store import Store, leases
from unifiednn_core.store.devices import AWAY, READY

TICK_S = 2.0
SILENT_S = leases.STOPS_S
"""Ray also calls a node dead whose raylet alone has died. A worker there that was heard of lately trains on.

One that was not takes no more steps by then."""
KEEP_S = 60.0
"""How often devices that are away are marked as known."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RayNode:
    """A node that Ray knows."""

    id: str
    host: str
    """What its host is called, if no other node is called so."""
    alive: bool
    gpus: int
    cpus: int

    @property
    def longer_host(self) -> str:
        """What its host is called otherwise."""
        return f"{self.host}-{self.id[:8]}"


class RayNodes(Protocol):
    """What this needs of Ray; `RayCluster` says what each method does."""

    def nodes(self) -> list[RayNode]: ...  # noqa: D102

    def start_agents(self, nodes: Iterable[TrainingNode], url: str) -> None: ...  # noqa: D102

    def offer(self, node: str, devices: Sequence[str]) -> None: ...  # noqa: D102

    def names(self, node: str, ids: Sequence[str]) -> frozenset[str] | None: ...  # noqa: D102

    def groups(self) -> list[str]: ...  # noqa: D102

    def reserve(self, group: str, node: TrainingNode) -> None: ...  # noqa: D102

    def granted(self, group: str) -> list[str] | None: ...  # noqa: D102

    def release(self, group: str) -> None: ...  # noqa: D102

    def request(self, resource: str, amount: float, more: int) -> None: ...  # noqa: D102


class RayWatch:
    """Watches one cluster for one database."""

    def __init__(
        self, store: Store, url: str, cluster: RayNodes, clock: Clock, *, idle_s: float, cpus: bool, scales: bool
    ):
        """`cpus`: nodes train on their CPUs, not on GPUs. `scales`: the autoscaler is told what waits."""
        self._store, self._url, self._cluster, self._clock = store, url, cluster, clock
        self._idle_s, self._cpus, self._scales = idle_s, cpus, scales
        now_s = clock.monotonic_s()
        found = (Reservation.named(name, now_s) for name in cluster.groups())
        self._plan = Reservations(groups=tuple(group for group in found if group is not None))
        self._requested = 0
        self._kept_at_s: float | None = None

    def run(self, stop: threading.Event) -> None:
        """Watch until told to stop."""
        while not stop.is_set():
            try:
                self.tick()
            except Exception:  # Ray or the database is away for a moment
                log_error(_log, "The Ray cluster could not be looked at; it tries again.")
            stop.wait(TICK_S)

    def tick(self) -> None:
        """Look once."""
        known = self._cluster.nodes()
        nodes = usable(known, cpus=self._cpus)
        self._lose(hosts_of(known, alive=False) - hosts_of(known, alive=True))
        self._cluster.start_agents(nodes, self._url)
        self._reserve(nodes)
        now_s = self._clock.monotonic_s()
        if self._kept_at_s is None or now_s - self._kept_at_s >= KEEP_S:  # Ray can give back what is given back now
            self._store.devices.keep(
                {node.host for node in nodes} | (hosts_of(known, alive=False) if self._scales else set())
            )
            self._kept_at_s = now_s

    def _reserve(self, nodes: Sequence[TrainingNode]) -> None:
        before = replace(self._plan, groups=tuple(map(self._with_devices, self._plan.groups)))
        # In this order: what was placed before its device went away is among those that are held.
        ready = {row.name for row in self._store.devices.all() if row.state == READY}
        held = self._store.workers.held()
        waiting = [run for run, _ in self._store.workers.waiting()]
        seen = ClusterView(
            now_s=self._clock.monotonic_s(),
            nodes=nodes,
            waits=demand_of(waiting, CPU if self._cpus else CUDA),
            used={name for hybrid in held for name in (hybrid.device or "", *hybrid.also)},
            ready=ready,
        )
        plan = next_plan(before, seen, self._idle_s)
        was, by_id = {group.name for group in before.groups}, {node.id: node for node in nodes}
        for name in was - {group.name for group in plan.groups}:
            self._cluster.release(name)
        self._plan = plan  # first: what Ray may have, although it raised an error, is not asked for again
        for group in plan.groups:
            if group.name not in was:
                self._cluster.reserve(group.name, by_id[group.node])
        for node in nodes:
            self._cluster.offer(node.id, sorted(plan.offered(node.id)))
        if self._scales and (plan.short or self._requested):
            self._cluster.request(
                "CPU" if self._cpus else "GPU", max((node.amount for node in nodes), default=1), plan.short
            )
            self._requested = plan.short

    def _with_devices(self, group: Reservation) -> Reservation:
        """The group with the names of its devices, if Ray has granted it by now."""
        if group.devices is not None:
            return group
        ids = self._cluster.granted(group.name)
        names = None if ids is None else self._cluster.names(group.node, ids)
        return group if names is None else replace(group, devices=names, since_s=self._clock.monotonic_s())

    def _lose(self, hosts: set[str]) -> None:
        """Declare the hosts of dead nodes lost, unless something there was heard of lately."""
        listed = {row.name: row for row in self._store.hosts.all() if row.state != AWAY and row.name in hosts}
        if not listed:
            return
        held = [hybrid for hybrid in self._store.workers.held() if host_of(hybrid.device) in listed]
        now_s = self._store.hosts.now_s()
        for name, row in listed.items():
            theirs = [hybrid for hybrid in held if host_of(hybrid.device) == name]
            heard_at_s = max([row.renewed_at_s, *(hybrid.heartbeat_at_s or 0.0 for hybrid in theirs)])
            if not leases.is_stale(heard_at_s, now_s, SILENT_S):
                continue
            for hybrid in theirs:
                cause = f"The host {name} is lost: Ray says that its node is dead."
                self._store.workers.lose(
                    hybrid.id, cause, "It goes on elsewhere.", seen=hybrid, counts=False, silent_s=SILENT_S
                )
            for hybrid, _ in self._store.hybrids.listed():
                if hybrid.heartbeat_at_s is None and host_of(hybrid.device) == name:  # shared ones go on elsewhere, too
                    self._store.workers.give_back(hybrid.id, dead=True)
            reports = any(host_of(hybrid.device) == name for hybrid in self._store.workers.held())
            if not reports and self._store.hosts.lose(name, None, SILENT_S):
                _log.warning("The host %s is lost: Ray says that its node is dead.", name)


def usable(known: Iterable[RayNode], *, cpus: bool) -> list[TrainingNode]:
    """The living nodes that can train, each with a host name of its own."""
    alive = sorted((node for node in known if node.alive), key=lambda node: node.id)
    named = Counter(node.host for node in alive)
    nodes = []
    for node in alive:
        host = node.host if named[node.host] == 1 else node.longer_host
        if cpus and node.cpus:
            nodes.append(TrainingNode(id=node.id, host=host, resource="CPU", units=1, amount=node.cpus))
        elif not cpus and node.gpus:
            nodes.append(TrainingNode(id=node.id, host=host, resource="GPU", units=node.gpus))
    return nodes


def hosts_of(known: Iterable[RayNode], *, alive: bool) -> set[str]:
    """All names that the hosts of living or dead nodes may have."""
    return {name for node in known if node.alive == alive for name in (node.host, node.longer_host)}
