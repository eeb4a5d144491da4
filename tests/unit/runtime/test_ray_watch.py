"""The watch over a cluster that a test plays, with real supervisors as agents and a real store."""

import subprocess
import sys
from collections.abc import Iterable, Sequence

import pytest

from tests.clock import SimulatedClock
from tests.unit.runtime.test_supervisor import Launcher, state, unlimited
from tests.unit.store.test_store import add_run
from unifiednn_core.runtime import ray_watch
from unifiednn_core.runtime.launchers import own_identity
from unifiednn_core.runtime.ray_plan import GRANT_S, TrainingNode
from unifiednn_core.runtime.ray_watch import SILENT_S, RayNode, RayWatch, usable
from unifiednn_core.runtime.supervisor import DEVICES_AGAIN_S, Supervisor
from unifiednn_core.spec.devices import Device
from unifiednn_core.spec.lifecycle import Event
from unifiednn_core.store import Store, leases
from unifiednn_core.store.devices import AWAY, READY

IDLE_S = 120.0


class Agent:
    """Of one node with two GPUs."""

    def __init__(self, store: Store, clock: SimulatedClock, host: str):
        self.host, self.offered, self.launcher = host, frozenset[str](), Launcher()
        self.supervisor = Supervisor(store, self.launcher, clock, budget=unlimited, devices=self._devices, host=host)
        self.supervisor.lease.enter()

    def _devices(self) -> list[Device]:
        return [
            Device(name=f"cuda:{at}", type="cuda", host="h", index=at, kind="H200", total_bytes=None, threads=1)
            for at in range(2)
            if f"{self.host}/cuda:{at}" in self.offered
        ]


class FakeCluster:
    def __init__(self, store: Store, clock: SimulatedClock):
        self.store, self.clock = store, clock
        self.known = [RayNode("1" * 16, "a", True, 2, 8), RayNode("2" * 16, "b", True, 2, 8)]
        self.agents: dict[str, Agent] = {}
        self.reserved: list[str] = []
        self.of_others: set[str] = set()
        self.requested: list[int] = []

    def nodes(self) -> list[RayNode]:
        return self.known

    def start_agents(self, nodes: Iterable[TrainingNode], url: str) -> None:
        for node in nodes:
            if node.id not in self.agents:
                self.agents[node.id] = Agent(self.store, self.clock, node.host)

    def offer(self, node: str, devices: Sequence[str]) -> None:
        self.agents[node].offered = frozenset(devices)

    def names(self, node: str, ids: Sequence[str]) -> frozenset[str] | None:
        return frozenset(f"{self.agents[node].host}/cuda:{one}" for one in ids)

    def groups(self) -> list[str]:
        return self.reserved

    def reserve(self, group: str, node: TrainingNode) -> None:
        self.reserved.append(group)

    def granted(self, group: str) -> list[str] | None:
        return None if group in self.of_others or group not in self.reserved else [group.rpartition("/")[2]]

    def release(self, group: str) -> None:
        if group in self.reserved:
            self.reserved.remove(group)

    def request(self, resource: str, amount: float, more: int) -> None:
        self.requested.append(more)

    def die(self, at: int) -> None:
        node = self.known[at]
        self.known[at] = RayNode(node.id, node.host, False, node.gpus, node.cpus)
        self.agents.pop(node.id, None)


def watch_of(store: Store, cluster: FakeCluster, clock: SimulatedClock) -> RayWatch:
    return RayWatch(store, "url", cluster, clock, idle_s=IDLE_S, cpus=False, scales=True)


def go_on(watch: RayWatch, cluster: FakeCluster, clock: SimulatedClock, seconds: float) -> None:
    """Let time pass, with a look of everybody each second."""
    for _ in range(int(seconds)):
        clock.advance(1.0)
        watch.tick()
        for agent in cluster.agents.values():
            agent.supervisor.tick()


def devices(store: Store, among: str = READY) -> set[str]:
    return {row.name for row in store.devices.all() if row.state == among}


def test_every_node_gets_an_agent_and_no_device_until_something_waits(store: Store, clock: SimulatedClock) -> None:
    cluster = FakeCluster(store, clock)
    watch = watch_of(store, cluster, clock)
    go_on(watch, cluster, clock, 3)
    assert [agent.host for agent in cluster.agents.values()] == ["a", "b"]
    assert cluster.reserved == [] and devices(store) == set()
    cluster.known.append(RayNode("3" * 16, "c", True, 2, 8))
    go_on(watch, cluster, clock, 1)
    assert cluster.agents["3" * 16].host == "c"


def test_a_run_gets_a_device_that_is_given_back_when_it_has_been_idle(store: Store, clock: SimulatedClock) -> None:
    cluster = FakeCluster(store, clock)
    watch = watch_of(store, cluster, clock)
    add_run(store, "r", device="cuda")
    go_on(watch, cluster, clock, 2 + DEVICES_AGAIN_S)
    assert len(cluster.reserved) == 1
    assert state(store, "r") == "starting" and cluster.agents["1" * 16].launcher.started == ["r"]
    go_on(watch, cluster, clock, 5)
    assert len(cluster.reserved) == 1, "nothing waits any more"
    store.runs.transition("r", None, Event.FAIL)
    store.workers.give_back("r")
    go_on(watch, cluster, clock, IDLE_S / 2)
    assert len(cluster.reserved) == 1
    go_on(watch, cluster, clock, IDLE_S)
    assert cluster.reserved == [] and devices(store) == set()
    assert cluster.requested == []


def test_gpus_of_others_are_left_alone_and_the_autoscaler_hears_of_it(store: Store, clock: SimulatedClock) -> None:
    cluster = FakeCluster(store, clock)
    cluster.of_others = {f"unifiednn/{node.id}/{at}" for node in cluster.known for at in range(2)}
    watch = watch_of(store, cluster, clock)
    add_run(store, "r", device="cuda")
    go_on(watch, cluster, clock, 2 * GRANT_S + 5)
    assert cluster.reserved == [] and cluster.requested[-1] == 1
    store.runs.transition("r", None, Event.FAIL)
    go_on(watch, cluster, clock, 2)
    assert cluster.requested[-1] == 0, "the request is withdrawn"


def test_another_watch_finds_what_the_first_one_reserved(store: Store, clock: SimulatedClock) -> None:
    cluster = FakeCluster(store, clock)
    add_run(store, "r", device="cuda")
    go_on(watch_of(store, cluster, clock), cluster, clock, 2 + DEVICES_AGAIN_S)
    before = list(cluster.reserved)
    go_on(watch_of(store, cluster, clock), cluster, clock, 20)
    assert cluster.reserved == before and state(store, "r") == "starting"


@pytest.mark.parametrize("made", [True, False])
def test_a_reservation_that_raises_an_error_is_asked_for_once(
    made: bool, store: Store, clock: SimulatedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = FakeCluster(store, clock)
    watch, reserve = watch_of(store, cluster, clock), cluster.reserve

    def cut_off(group: str, node: TrainingNode) -> None:
        if made:
            reserve(group, node)
        raise ConnectionError

    add_run(store, "r", device="cuda")
    monkeypatch.setattr(cluster, "reserve", cut_off)
    with pytest.raises(ConnectionError):
        watch.tick()
    monkeypatch.undo()
    go_on(watch, cluster, clock, GRANT_S + 5 + DEVICES_AGAIN_S)
    assert len(cluster.reserved) == 1 and state(store, "r") == "starting"


def started(store: Store, cluster: FakeCluster, watch: RayWatch, clock: SimulatedClock) -> None:
    """Let a run come to node a, with this process as its worker."""
    add_run(store, "r", device="cuda")
    go_on(watch, cluster, clock, 2 + DEVICES_AGAIN_S)
    store.workers.register("r", own_identity())


def test_the_host_of_a_dead_node_is_lost_at_once_and_its_run_goes_on_elsewhere(
    store: Store, clock: SimulatedClock
) -> None:
    cluster = FakeCluster(store, clock)
    watch = watch_of(store, cluster, clock)
    started(store, cluster, watch, clock)
    cluster.die(0)
    go_on(watch, cluster, clock, SILENT_S - 2)
    assert cluster.agents["2" * 16].launcher.started == [], "it may still live"
    go_on(watch, cluster, clock, 6 + DEVICES_AGAIN_S)
    assert cluster.agents["2" * 16].launcher.started == ["r"], "before the lease of 30 s has run out"
    assert {row.name: row.state for row in store.hosts.all()}["a"] == AWAY


def test_a_host_of_which_ray_says_nothing_is_left_to_its_lease(store: Store, clock: SimulatedClock) -> None:
    cluster = FakeCluster(store, clock)
    watch = watch_of(store, cluster, clock)
    started(store, cluster, watch, clock)
    del cluster.agents["1" * 16]  # silent, but Ray has not said that the node is dead
    cluster.start_agents = lambda nodes, url: None  # type: ignore[method-assign,assignment]
    cluster.offer = lambda node, devices: None  # type: ignore[method-assign,assignment]
    go_on(watch, cluster, clock, SILENT_S + 5)
    assert state(store, "r") != "queued" and cluster.agents["2" * 16].launcher.started == []


@pytest.mark.parametrize("looks", [True, False])
def test_a_worker_that_outlives_its_raylet_goes_on(
    looks: bool, store: Store, clock: SimulatedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not looks:  # control: Ray alone is believed
        monkeypatch.setattr(ray_watch, "SILENT_S", 0.0)
    cluster = FakeCluster(store, clock)
    watch = watch_of(store, cluster, clock)
    started(store, cluster, watch, clock)
    cluster.die(0)
    for _ in range(8):
        go_on(watch, cluster, clock, 5)
        if store.hybrids.get("r")[0].worker_pid is not None:
            store.hybrids.update("r", heartbeat_at_s=clock.utc_s())
    assert (cluster.agents["2" * 16].launcher.started == []) == looks
    assert (store.hybrids.get("r")[0].worker_pid is not None) == looks


def test_a_worker_and_a_host_that_are_heard_of_at_the_last_moment_are_not_lost(
    store: Store, clock: SimulatedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows that the watch has read are older than what has been reported since."""
    cluster = FakeCluster(store, clock)
    watch = watch_of(store, cluster, clock)
    started(store, cluster, watch, clock)
    agent = cluster.agents["1" * 16]
    cluster.die(0)
    held, hosts = store.workers.held(), store.hosts.all()
    clock.advance(SILENT_S + 1)
    agent.supervisor.lease.keep(dict)
    store.hybrids.update("r", heartbeat_at_s=clock.utc_s())
    monkeypatch.setattr(store.workers, "held", lambda: held)
    monkeypatch.setattr(store.hosts, "all", lambda: hosts)
    watch.tick()
    monkeypatch.undo()
    assert store.hybrids.get("r")[0].worker_pid is not None
    assert {row.name: row.state for row in store.hosts.all()}["a"] == READY


def test_no_node_is_given_up_before_its_workers_have_stopped() -> None:
    assert not leases.may_step(0.0, SILENT_S)


def test_nodes_with_one_name_get_hosts_of_their_own() -> None:
    known = [
        RayNode("1" * 16, "a", True, 1, 4),
        RayNode("2" * 16, "a", True, 0, 4),
        RayNode("3" * 16, "b", False, 1, 4),
    ]
    assert [(node.host, node.resource, node.amount) for node in usable(known, cpus=True)] == [
        ("a-11111111", "CPU", 4),
        ("a-22222222", "CPU", 4),
    ]
    assert [node.id for node in usable(known, cpus=False)] == ["1" * 16]


def test_nothing_of_ray_is_imported_unasked() -> None:
    program = (
        "import sys, unifiednn_core.cli.main, unifiednn_core.runtime.ray_watch, unifiednn_core.runtime.ray_node, "
        "unifiednn_core.service.facade; print([name for name in sys.modules if name.partition('.')[0] == 'ray'])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
