"""A worker that cannot renew its lease holds its steps back, and goes on once it can."""

import threading

import pytest

from tests.clock import SimulatedClock
from unifiednn_core.runtime import worker_lease
from unifiednn_core.runtime.worker_lease import WorkerLease
from unifiednn_core.store.leases import STOPS_S


def test_steps_wait_for_a_heartbeat_and_nothing_else_does(clock: SimulatedClock) -> None:
    lease, marks = WorkerLease(clock, counts=True), list[str]()
    mark = lease.before_steps(lambda lane, name, doing: marks.append(doing))
    clock.advance(STOPS_S - 0.1)
    mark(1, "net", "step 1")
    clock.advance(0.2)
    mark(1, "net", "evaluation after step 1")
    mark(1, "net", "")
    stepping = threading.Thread(target=mark, args=(1, "net", "step 2"))
    stepping.start()
    stepping.join(0.2)
    assert stepping.is_alive() and marks == ["step 1", "evaluation after step 1", ""]
    lease.renewed(clock.monotonic_s() - STOPS_S - 1)  # written so late that it is old already
    stepping.join(0.2)
    assert stepping.is_alive()
    lease.renewed(clock.monotonic_s() - 1)
    stepping.join(60)
    assert marks[-1] == "step 2"


def test_an_older_heartbeat_takes_nothing_back(clock: SimulatedClock) -> None:
    lease = WorkerLease(clock, counts=True)
    clock.advance(100)
    assert not lease.stands
    lease.renewed(100 + 1000.0)
    lease.renewed(50.0)
    assert lease.stands


def test_alone_on_a_machine_a_worker_trains_on(clock: SimulatedClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_lease, "LOOK_S", 0.01)
    lease = WorkerLease(clock, counts=False)
    clock.advance(1e6)
    lease.wait()
    assert lease.stands
