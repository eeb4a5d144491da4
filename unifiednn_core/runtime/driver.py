"""The driver: the process beside the server that offers the nodes of a Ray cluster and runs workers there.

Ray places, starts, watches and transports; what happens is decided and written here, on the server's machine. Ray ends
a process that misses its head for a minute, so the server itself never imports Ray, and `runtime.cluster` starts this
process again. All that it knows stands in the store and in the actors, which have names.
"""

import logging
import re
import secrets
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
import ray._private.worker as _worker
from ray.autoscaler.sdk import request_resources
from ray.exceptions import RayError

from unifiednn_core.base import failpoints
from unifiednn_core.base.files import folder_lock, set_private_umask, write_text
from unifiednn_core.base.paths import Home
from unifiednn_core.base.trouble import log_error
from unifiednn_core.base.visible import keep_log_visible
from unifiednn_core.machine.versions import differences
from unifiednn_core.runtime.attempt import Attempt, Room, Site, kill, name_of
from unifiednn_core.runtime.cluster import LOCAL
from unifiednn_core.runtime.confinement import die_with_parent
from unifiednn_core.runtime.relay import NodeFacts, probe
from unifiednn_core.spec.devices import (
    AUTO,
    CPU,
    CUDA,
    HOST_NAME,
    SERVER,
    Device,
    host_of,
    on_host,
    own_name,
    type_named,
)
from unifiednn_core.store import Store
from unifiednn_core.store.nodes import CLUSTER, NodeRow
from unifiednn_core.store.schema import HybridRow

TICK_S, NODES_S, PROBE_AGAIN_S = 0.5, 5.0, 60.0
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Node:
    """A node of the cluster, as the driver found it."""

    room: Room
    name: str
    gpus: int
    asked: Any = None
    """The probe that is under way."""
    facts: NodeFacts | None = None
    refused: str = ""
    """Why it is not used."""
    again_s: float = 0.0
    """Monotonic time from which it is asked again."""

    @classmethod
    def of(cls, found: dict[str, Any]) -> "Node":
        """A node as Ray describes it. Its devices carry its name, or its address."""
        has, name = found["Resources"], re.sub(r"[^a-z0-9._-]+", "-", str(found["NodeName"]).lower())
        if not HOST_NAME.fullmatch(name) or name in (SERVER, AUTO, CPU, CUDA, CLUSTER):
            name = f"node-{found['NodeID'][:8]}"
        return cls(Room(found["NodeID"], float(has.get("CPU", 0.0))), name, int(has.get("GPU", 0)))

    @property
    def devices(self) -> list[Device]:
        """What it offers, as the fleet knows it."""
        found = [] if self.facts is None or self.refused else self.facts.devices
        return [on_host(one, self.name) for one in found if one.type != CPU or self.room.cpus]

    @property
    def is_new(self) -> bool:
        """Whether it has not answered yet."""
        return self.facts is None and not self.refused

    def row(self, now_s: float) -> NodeRow:
        """How it is shown."""
        facts = {} if self.facts is None else {"versions": self.facts.versions, "devices": len(self.facts.devices)}
        state = "refused" if self.refused else "ready"
        why = "UnifiedNN is starting there." if self.is_new else self.refused
        return NodeRow(name=self.name, state=state, why=why, facts=facts, seen_at_s=now_s)

    def learn(self) -> None:
        """Ask it what it has. The answer comes with a later look."""
        if self.asked is None and time.monotonic() >= self.again_s:
            self.asked = ray.remote(num_cpus=0)(probe).options(scheduling_strategy=self.room.on()).remote(self.gpus)
        if self.asked is None or self.facts is not None or not ray.wait([self.asked], timeout=0)[0]:
            return
        try:
            self.facts = ray.get(self.asked)
            self.refused = " ".join([*differences(self.facts.versions), *self.facts.problems])
        except RayError as error:
            last = str(error).strip().splitlines()[-1]
            self.refused, self.asked = f"UnifiedNN does not start there: {last[:200]}", None
            self.again_s = time.monotonic() + PROBE_AGAIN_S


class Driver:
    """Watches a cluster and a store. `tick` is one look; each attempt has a thread of its own."""

    def __init__(self, home: Home, store: Store, *, alone: bool):
        """`alone` offers the node of this very machine, too, which the server otherwise offers itself."""
        self._site, self._store = Site(home, store, _namespace(home), self.look_at_nodes), store
        self._nodes: dict[str, Node] = {}
        """Those that live, by name."""
        self._looking, self._looked_at_s = threading.Lock(), -NODES_S
        self._attempts: dict[str, Attempt] = {}
        self._others: set[str] = set()
        """Actors of no attempt, at the last look."""
        self._demand: list[dict[str, float]] | None = None
        self._own = None if alone else ray.get_runtime_context().get_node_id()

    def tick(self) -> None:
        """Look at the nodes and at the hybrids that hold devices there."""
        held = [hybrid for hybrid in self._store.workers.held() if host_of(hybrid.device) != SERVER]
        if time.monotonic() - self._looked_at_s >= NODES_S or any(node.is_new for node in list(self._nodes.values())):
            self.look_at_nodes()
            self._end_others({name_of(hybrid) for hybrid in held})
        self._attempts = {name: one for name, one in self._attempts.items() if one.alive}
        for hybrid in held:
            if name_of(hybrid) not in self._attempts:
                node = self._nodes.get(host_of(hybrid.device))
                self._attempts[name_of(hybrid)] = Attempt(self._site, hybrid, node.room if node else None)
        self._ask_for(held)

    def look_at_nodes(self) -> None:
        """Ask Ray which nodes live, and record what they offer. Safe in any thread."""
        with self._looking:
            found: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
            living = {node.name: node for node in map(Node.of, (one for one in found if one["Alive"]))}
            living = {name: node for name, node in living.items() if node.room.node_id != self._own}
            for name in self._nodes.keys() - living.keys():
                del self._nodes[name]
                self._store.devices.write([], name)
            for name, node in living.items():
                if name not in self._nodes or self._nodes[name].room != node.room:  # new, or started again
                    self._nodes[name] = node
                self._nodes[name].learn()
                self._store.devices.write(self._nodes[name].devices, name)
            self._write_nodes()
            self._looked_at_s = time.monotonic()

    def _write_nodes(self) -> None:
        now_s = self._store.clock.utc_s()
        head = NodeRow(name=CLUSTER, state="ready", why="", facts={"dashboard": _dashboard()}, seen_at_s=now_s)
        gone = [row for row in self._store.nodes.all() if row.name not in (*self._nodes, CLUSTER)]
        for row in gone:
            row.state, row.why = "away", "Ray says that it is gone."
        self._store.nodes.write([head, *(node.row(now_s) for node in self._nodes.values()), *gone])

    def _end_others(self, held: set[str]) -> None:
        """End the actors of attempts that are over, once their attempts have had time to do it."""
        there = ray.util.list_named_actors(all_namespaces=True)
        others = {one["name"] for one in there if one["namespace"] == self._site.namespace} - held
        for name in others & self._others:
            kill(name, self._site.namespace)
        self._others = others

    def _ask_for(self, held: Sequence[HybridRow]) -> None:
        """Tell Ray what is held and what waits, so that its autoscaler can bring nodes and give idle ones back."""
        has_gpus = any(node.gpus for node in list(self._nodes.values()))
        asked = [(name, one.threads) for one in held for name in (one.device or "", *one.also)]
        asked += [(run.device, run.threads or 1) for run, _ in self._store.workers.waiting()]
        demand = [_bundle(name, threads, has_gpus) for name, threads in asked]
        if demand != self._demand:
            request_resources(bundles=demand)
            self._demand = demand


def run(home: Home, address: str) -> None:
    """Watch a cluster until Ray ends this process, because the head is gone. Raises what Ray does if it never was."""
    store = Store.open(home)
    with folder_lock(home.database.parent, exclusive=True):  # one driver, also while the last one still ends
        dashboard = False if address == LOCAL else None
        ray.init(address=address, include_dashboard=dashboard, log_to_driver=False, logging_level=logging.WARNING)
        driver = Driver(home, store, alone=address == LOCAL)
        while True:
            try:
                driver.tick()
            except Exception:  # a full disk, a locked store, a head that is slow
                log_error(_log, "The driver could not look; it tries again.")
            time.sleep(TICK_S)


def _namespace(home: Home) -> str:
    """Name of this home in the cluster; it stays."""
    path = home.root / "ray-namespace"
    if not path.exists():
        write_text(path, f"unifiednn-{secrets.token_hex(6)}")
    return path.read_text(encoding="utf-8")


def _bundle(device: str, threads: int, has_gpus: bool) -> dict[str, float]:
    on_gpu = type_named(device) == CUDA or (has_gpus and not own_name(device).startswith(CPU))
    return {"GPU": 1.0} if on_gpu else {"CPU": float(threads)}


def _dashboard() -> str:
    """Where Ray's own dashboard is, as HOST:PORT; nothing without one."""
    node = _worker.global_worker.node
    return (node.webui_url or "") if node else ""


def main() -> None:
    """Drive a cluster for the server of a home: `python -m unifiednn_core.runtime.driver HOME ADDRESS PARENT`."""
    die_with_parent(int(sys.argv[3]))
    set_private_umask()
    failpoints.arm_from_environment()
    keep_log_visible()
    run(Home(Path(sys.argv[1])), sys.argv[2])


if __name__ == "__main__":
    main()
