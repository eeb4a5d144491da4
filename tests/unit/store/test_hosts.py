"""Hosts in rows: who may serve one, when it is lost, and what happens to its devices."""

from dataclasses import replace

import pytest

from tests.clock import SimulatedClock
from tests.unit.store.test_store import BERTH, add_run
from unifiednn_core.base.errors import BadInput, NotFound
from unifiednn_core.spec.devices import SERVER, Device, host_of, on_host
from unifiednn_core.store import Store
from unifiednn_core.store.devices import AWAY, DRAINING, READY
from unifiednn_core.store.hosts import PARKING, HostRow
from unifiednn_core.store.leases import GAP_S, LOST_S, RENEW_S

CPU = Device(name="cpu", type="cpu", host="h", index=0, kind="EPYC, AVX2, 2 threads", total_bytes=2**35, threads=2)
CARD = Device(name="cuda:0", type="cuda", host="h", index=0, kind="H200", total_bytes=2**37, threads=2)


def host(name: str, boot: str = "boot", pid: int = 1) -> HostRow:
    return HostRow(name=name, machine=f"machine {boot}", boot_id=boot, agent_pid=pid, agent_started_at_s=1.0, facts={})


def of(store: Store, name: str) -> HostRow:
    [row] = [row for row in store.hosts.all() if row.name == name]
    return row


def test_sqlite_serves_one_machine_as_long_as_that_is_heard(store: Store, clock: SimulatedClock) -> None:
    assert store.hosts.enter(host(SERVER, "one")) is None
    for name in (SERVER, "a"):
        blocking = store.hosts.enter(host(name, "two"))
        assert blocking is not None and blocking.machine == "machine one"
    assert store.hosts.enter(host("a", "one", pid=2)) is None, "two hosts on one machine may share it"
    assert store.hosts.enter(host(SERVER, "one", pid=3)) is None, "a command beside the server"
    clock.advance(LOST_S + 1)
    assert store.hosts.enter(host(SERVER, "two")) is None, "after a restart the machine has another boot id"


def test_a_server_in_another_container_of_the_machine_serves_beside_it(store: Store) -> None:
    first, second = host(SERVER, "one/1"), host(SERVER, "one/2", pid=2)
    assert store.hosts.enter(first) is None and store.hosts.enter(second) is None
    assert store.hosts.renew(host(SERVER, "one/1"), {}) and store.hosts.renew(host(SERVER, "one/2", pid=2), {})
    assert store.hosts.enter(host("a", "one/1")) is None
    assert not store.hosts.renew(host("a", "one/2"), {}), "the same PID of another container"


def test_a_renewal_after_a_gap_begins_anew(store: Store, clock: SimulatedClock) -> None:
    store.hosts.enter(host("a"))
    begun_s = clock.utc_s()
    for _ in range(20):
        clock.advance(RENEW_S)
        assert store.hosts.renew(host("a"), {"a/cpu": 5})
    assert of(store, "a").since_s == begun_s and of(store, "a").free_bytes == {"a/cpu": 5}
    clock.advance(GAP_S + 1)
    store.hosts.renew(host("a"), {})
    assert of(store, "a").since_s == of(store, "a").renewed_at_s == clock.utc_s()


def test_a_lost_host_takes_its_devices_with_it_and_brings_them_back(store: Store, clock: SimulatedClock) -> None:
    for name in ("a", "b"):
        store.hosts.enter(host(name))
        store.devices.write([on_host(CPU, name), on_host(CARD, name)], name)
    store.devices.set_state("a/cuda:0", DRAINING)
    assert not store.hosts.lose("a", "b"), "it has not been silent for long enough"
    assert not store.hosts.lose("a", None, RENEW_S), "nor for anybody else"
    for _ in range(int(LOST_S // RENEW_S)):
        clock.advance(RENEW_S)
        store.hosts.renew(host("b"), {})
    assert not store.hosts.lose("a", "b"), "not later than at this moment"
    clock.advance(RENEW_S)
    assert not store.hosts.lose("a", "a"), "a host that is late itself judges nobody"
    assert not store.hosts.lose("b", "a")
    store.hosts.renew(host("b"), {})
    assert store.hosts.lose("a", "b")
    states = {row.name: row.state for row in store.devices.all()}
    assert states == {"a/cpu": AWAY, "a/cuda:0": DRAINING, "b/cpu": READY, "b/cuda:0": READY}
    assert not store.hosts.renew(host("a"), {}), "it hears of it"
    store.hosts.enter(host("a"))
    store.devices.write([on_host(CPU, "a"), on_host(CARD, "a")], "a")
    states = {row.name: row.state for row in store.devices.all() if host_of(row.name) == "a"}
    assert states == {"a/cpu": READY, "a/cuda:0": DRAINING}, "what an operator drained stays drained"


def test_each_host_writes_its_own_devices_alone(store: Store, clock: SimulatedClock) -> None:
    store.devices.write([CPU, CARD])
    store.devices.write([on_host(CPU, "a")], "a")
    store.devices.write([CPU])
    store.devices.write([], "a")
    assert {row.name: row.state for row in store.devices.all()} == {"cuda:0": AWAY, "cpu": READY, "a/cpu": AWAY}
    assert [one.name for one in store.devices.of_others()] == ["a/cpu"], "it may return in a moment"
    clock.advance(3600)
    assert store.devices.of_others() == []


def test_a_host_that_is_away_and_holds_nothing_is_forgotten(store: Store, clock: SimulatedClock) -> None:
    for name in (SERVER, "a", "b"):
        store.hosts.enter(host(name))
        store.devices.write([on_host(CPU, name)], name)
    store.devices.set_state("a/cpu", DRAINING)
    with pytest.raises(NotFound, match="Known hosts: a, b, server"):
        store.hosts.forget("c")
    for name, why in (("a", "a is there"), (SERVER, "The host of the server stays")):
        with pytest.raises(BadInput, match=why):
            store.hosts.forget(name)
    add_run(store, "r")
    store.workers.claim("r", replace(BERTH, device="a/cpu"))
    store.hosts.leave("a")
    with pytest.raises(BadInput, match="A worker on a still trains"):
        store.hosts.forget("a")
    store.workers.lose("r", "It died.", "Resume it.")
    store.hosts.forget("a")
    assert [row.name for row in store.hosts.all()] == [SERVER, "b"]
    assert {row.name for row in store.devices.all()} == {"cpu", "b/cpu"}
    assert not store.hosts.renew(host("a"), {}) and store.hosts.enter(host("a")) is None, "its agent joins again"


def test_a_host_that_parks_is_gone_once_it_has_left(store: Store) -> None:
    store.hosts.enter(host("a"))
    store.devices.write([on_host(CPU, "a")], "a")
    assert store.hosts.renew(host("a"), {}, parks=True) and of(store, "a").state == PARKING
    store.hosts.leave("a")
    assert of(store, "a").state == AWAY and [row.state for row in store.devices.all()] == [AWAY]
    store.hosts.leave("unknown")
