"""Several hosts over one store: each enacts what concerns its own devices, and judges the others by their leases."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from tests.clock import SimulatedClock
from tests.unit.runtime.test_supervisor import Launcher, state, unlimited
from tests.unit.store.test_store import add_run
from unifiednn_core.base.errors import BadInput
from unifiednn_core.machine.budget import Budget
from unifiednn_core.runtime import host_lease, launchers
from unifiednn_core.runtime.supervisor import Supervisor
from unifiednn_core.spec.devices import SERVER, Device, host_of
from unifiednn_core.spec.lifecycle import Event
from unifiednn_core.store import Store
from unifiednn_core.store.devices import AWAY, DRAINING, READY
from unifiednn_core.store.hosts import PARKING
from unifiednn_core.store.leases import LOST_S, RENEW_S
from unifiednn_core.store.telemetry import TelemetryRows
from unifiednn_core.store.workers import WorkerIdentity

CPU = Device(name="cpu", type="cpu", host="h", index=0, kind="EPYC, AVX2, 1 thread", total_bytes=2**40, threads=1)


class Hosts:
    """Hosts with one CPU device each, their supervisors and launchers."""

    def __init__(self, store: Store, clock: SimulatedClock, *names: str):
        self.store, self.clock = store, clock
        self.launchers = {name: Launcher() for name in names}
        self.supervisors = {name: self._supervisor(name, unlimited) for name in names}

    def _supervisor(self, name: str, budget: Callable[[str], Budget]) -> Supervisor:
        return Supervisor(self.store, self.launchers[name], self.clock, budget=budget, devices=lambda: [CPU], host=name)

    def tick(self, *names: str) -> None:
        for name in names or tuple(self.supervisors):
            self.supervisors[name].tick()

    def live(self, seconds: float, names: Sequence[str], beating: Sequence[str] = ()) -> None:
        """Let time pass: these supervisors tick, and the workers of these hybrids report."""
        for _ in range(int(seconds / RENEW_S) + 1):
            self.clock.advance(RENEW_S)
            for hybrid_id in beating:
                self.store.telemetry.write(hybrid_id, TelemetryRows())
            self.tick(*names)

    def device_of(self, run_id: str) -> str:
        hybrid = self.store.runs.get(run_id)[0].hybrid
        return "" if hybrid is None or hybrid.heartbeat_at_s is None else hybrid.device or ""

    def register(self, run_id: str, pid: int) -> None:
        """Let the worker of a run register: a process of another container, as far as /proc can tell."""
        self.store.workers.register(run_id, WorkerIdentity(pid, 1.0, launchers.boot_id()))
        self.store.runs.transition(run_id, None, Event.BEGIN)


@pytest.fixture
def hosts(store: Store, clock: SimulatedClock) -> Hosts:
    made = Hosts(store, clock, "a", "b")
    made.tick()
    made.tick()  # now both see the devices of both
    return made


def test_each_starts_only_what_is_placed_on_its_own_devices(store: Store, hosts: Hosts) -> None:
    for number in range(3):
        add_run(store, f"r{number}", number)
    hosts.tick()
    started = {name: launcher.started for name, launcher in hosts.launchers.items()}
    assert sorted(map(len, started.values())) == [1, 1]
    for name, runs in started.items():
        assert [host_of(hosts.device_of(run_id)) for run_id in runs] == [name]
    assert state(store, "r2") == "queued"


def test_a_run_may_ask_for_a_host(store: Store, hosts: Hosts) -> None:
    add_run(store, "one", 1, device="b")
    add_run(store, "two", 2, device="b/cpu")
    hosts.tick()
    assert hosts.launchers["b"].started == ["one"] and hosts.launchers["a"].started == []
    assert store.runs.get("two")[0].waits_for is not None


def test_the_memory_of_others_is_read_from_their_rows(store: Store, clock: SimulatedClock) -> None:
    hosts = Hosts(store, clock, "a", "b")
    hosts.supervisors["a"] = hosts._supervisor("a", lambda device: Budget(2**40, 7))
    hosts.live(2 * RENEW_S, ("a", "b"))
    seen = {name: one.fleet().view for name, one in hosts.supervisors.items()}
    for view in seen.values():
        assert {device.name: device.free_bytes for device in view.devices} == {"a/cpu": 7, "b/cpu": 2**40}
    pools = {device.pool for device in seen["a"].devices}
    assert len(pools) == 2, "the memory of two machines is not common"


def test_a_lost_host_gives_its_runs_to_the_other(store: Store, hosts: Hosts) -> None:
    add_run(store, "r", device="auto")
    hosts.tick("a")
    hosts.register("r", 999_999_999)
    assert hosts.device_of("r") == "a/cpu"
    hosts.live(LOST_S - RENEW_S, ["b"])
    assert state(store, "r") == "running", "not before its lease has run out"
    hosts.live(2 * RENEW_S, ["b"])
    assert hosts.device_of("r") == "b/cpu" and hosts.launchers["b"].started == ["r"]
    assert {row.name: row.state for row in store.devices.all()} == {"a/cpu": AWAY, "b/cpu": READY}
    said = [event.fields.get("cause", "") for event in store.telemetry.history("r", None).events]
    assert any("Nothing was heard of the host a for 30 s" in text for text in said)
    assert store.hybrids.get("r")[0].deaths == 0, "the hybrid did not cause it"
    hosts.tick("a")
    hosts.tick("a")
    assert {row.state for row in store.devices.all()} == {READY}, "a host that returns offers its devices again"


def test_an_agent_alone_may_die(store: Store, hosts: Hosts) -> None:
    """Its workers report by themselves; the next agent of the name judges them by /proc again."""
    add_run(store, "r")
    hosts.tick("a")
    hosts.register("r", 999_999_999)
    hosts.live(3 * LOST_S, ["b"], beating=["r"])
    assert hosts.device_of("r") == "a/cpu" and state(store, "r") == "running"
    assert next(row.state for row in store.devices.all() if row.name == "a/cpu") == AWAY, "nothing new starts there"
    hosts.tick("a")
    assert state(store, "r") != "running", "there is no such process"


def test_after_an_outage_nobody_is_condemned_at_once(store: Store, hosts: Hosts) -> None:
    add_run(store, "r")
    hosts.tick("a")
    hosts.register("r", 999_999_999)
    hosts.clock.advance(10 * LOST_S)
    hosts.tick("b")
    hosts.live(LOST_S - 2 * RENEW_S, ["b"])
    assert state(store, "r") == "running"
    hosts.live(3 * RENEW_S, ["b"])
    assert hosts.device_of("r") != "a/cpu", "the control: then it counts"


def test_one_host_alone_says_what_runs_wait_for(store: Store, clock: SimulatedClock) -> None:
    hosts = Hosts(store, clock, SERVER, "b", "a")
    hosts.tick()
    hosts.live(2 * RENEW_S, (SERVER, "b", "a"))
    assert {name: one.lease.speaks for name, one in hosts.supervisors.items()} == {SERVER: True, "b": False, "a": False}
    hosts.live(LOST_S + 2 * RENEW_S, ("b", "a"))
    assert {name: hosts.supervisors[name].lease.speaks for name in ("b", "a")} == {"b": False, "a": True}


def test_a_host_that_parks_lets_go_and_takes_nothing_new(store: Store, hosts: Hosts) -> None:
    add_run(store, "first", 1)
    hosts.tick("a")
    hosts.supervisors["a"].park()
    add_run(store, "second", 2)
    hosts.tick()
    hosts.tick()
    hybrid, _ = store.hybrids.get("first")
    assert hybrid.leaving == "a/cpu is drained." and hosts.device_of("second") == "b/cpu"
    assert hosts.launchers["a"].started == ["first"]


def test_a_host_that_was_lost_while_it_parks_still_parks_when_it_returns(store: Store, hosts: Hosts) -> None:
    hosts.supervisors["a"].park()
    hosts.live(LOST_S + 2 * RENEW_S, ["b"])
    assert {row.name: row.state for row in store.hosts.all()}["a"] == AWAY
    add_run(store, "r", device="a")
    hosts.tick("a")
    assert {row.name: row.state for row in store.hosts.all()}["a"] == PARKING
    hosts.tick()
    assert hosts.launchers["a"].started == []


def test_a_server_without_devices_leaves_all_to_its_agents(store: Store, clock: SimulatedClock) -> None:
    hosts = Hosts(store, clock, SERVER, "a")
    hosts.supervisors[SERVER] = Supervisor(store, hosts.launchers[SERVER], clock, budget=unlimited, devices=list)
    hosts.live(RENEW_S, (SERVER, "a"))
    add_run(store, "r", device="auto")
    hosts.tick()
    assert hosts.launchers == {SERVER: hosts.launchers[SERVER], "a": hosts.launchers["a"]}
    assert (hosts.launchers[SERVER].started, hosts.launchers["a"].started) == ([], ["r"])


def test_nothing_is_placed_on_a_host_that_nobody_serves(store: Store, hosts: Hosts) -> None:
    store.devices.write([CPU])  # a command on the machine of the server looked at it
    for number in range(3):
        add_run(store, f"r{number}", number, device="auto")
    hosts.tick()
    assert sum(len(launcher.started) for launcher in hosts.launchers.values()) == 2
    assert store.runs.get("r2")[0].waits_for is not None
    add_run(store, "there", 9, device="server")
    hosts.tick()
    assert "cpu is away" in (store.runs.get("there")[0].waits_for or "")
    assert not store.hosts.is_served(SERVER) and store.hosts.is_served("a")


def test_a_drained_device_of_another_host_is_emptied_by_its_own_supervisor(store: Store, hosts: Hosts) -> None:
    add_run(store, "r")
    hosts.tick("a")
    store.devices.set_state("a/cpu", DRAINING)
    hosts.tick("b")
    assert store.hybrids.get("r")[0].leaving is None
    hosts.tick("a")
    assert store.hybrids.get("r")[0].leaving is not None


def test_a_host_is_served_by_one_agent(store: Store, clock: SimulatedClock, monkeypatch: pytest.MonkeyPatch) -> None:
    first = host_lease.HostLease(store, clock, "a")
    first.enter()
    me = launchers.own_identity()
    other = replace(me, pid=me.pid + 1)
    monkeypatch.setattr(host_lease, "own_identity", lambda: other)
    with pytest.raises(BadInput, match=f"The process {me.pid} of .* is the agent of 'a' already"):
        host_lease.HostLease(store, clock, "a").enter()
    monkeypatch.setattr(host_lease, "is_alive", lambda worker: False)
    host_lease.HostLease(store, clock, "a").enter()  # it has ended
    monkeypatch.setattr(host_lease, "own_identity", lambda: me)
    clock.advance(60)
    first.keep(dict)
    assert first.stands, "its successor has fallen silent"


def test_another_machine_on_sqlite_is_refused_once_it_is_heard(store: Store, clock: SimulatedClock) -> None:
    here, away = host_lease.HostLease(store, clock, SERVER), host_lease.HostLease(store, clock, "a")
    me = launchers.own_identity()

    def there(sleep: Callable[[float], object]) -> None:
        """Let the other machine try to enter."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(launchers, "boot_id", lambda: "another boot")
            away.enter(sleep)

    def passes(seconds: float) -> None:
        clock.advance(RENEW_S)

    def passes_and_is_heard(seconds: float) -> None:
        clock.advance(RENEW_S)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(launchers, "boot_id", lambda: me.boot_id)
            here.keep(dict)

    here.enter()
    with pytest.raises(BadInput, match="SQLite serves one machine"):
        there(passes_and_is_heard)
    there(passes)  # silent for so long: the machine was restarted
    assert away.stands
