import signal
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from tests.clock import SimulatedClock
from tests.unit.runtime.test_many_hosts import CPU
from tests.unit.runtime.test_supervisor import unlimited
from unifiednn_core.base.paths import Home
from unifiednn_core.runtime import agent
from unifiednn_core.runtime.agent import GIVES_UP_S, Agent
from unifiednn_core.runtime.launchers import LocalLauncher
from unifiednn_core.runtime.supervisor import Supervisor
from unifiednn_core.store import Store
from unifiednn_core.store.devices import AWAY
from unifiednn_core.store.schema import HybridRow
from unifiednn_core.store.workers import WorkerIdentity


def test_workers_are_ended_also_if_the_database_goes_away(
    clock: SimulatedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, sent = [0], list[tuple[WorkerIdentity, int]]()

    def held() -> list[HybridRow]:
        looks[0] += 1
        if looks[0] > 1:
            raise OperationalError("", None, Exception())
        return [HybridRow(id="r", worker_pid=7, worker_started_at_s=1.0, worker_boot_id="boot")]

    def leave(name: str) -> None:
        raise OperationalError("", None, Exception())

    monkeypatch.setattr(agent.time, "sleep", clock.advance)
    monkeypatch.setattr(agent, "_send", lambda worker, number: sent.append((worker, number)))
    supervisor: Any = SimpleNamespace(held=held, park=lambda: None, stop=lambda: None, lease=SimpleNamespace(host="h"))
    store: Any = SimpleNamespace(hosts=SimpleNamespace(leave=leave))
    Agent(store, supervisor, clock).park()
    me = WorkerIdentity(7, 1.0, "boot")
    assert sent[0] == (me, signal.SIGTERM) and set(sent[1:]) == {(me, signal.SIGKILL)}
    assert clock.utc_s() >= 1000.0 + GIVES_UP_S


def test_nothing_ticks_any_more_when_a_host_is_left(
    home: Home, store: Store, clock: SimulatedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tick that is under way would enter the host again, or write its devices as ready."""
    launcher, ticks = LocalLauncher(home), list[bool]()
    supervisor = Supervisor(store, launcher, clock, budget=unlimited, devices=lambda: [CPU], host="a")
    leave, asked = store.hosts.leave, threading.Event()

    def noted(name: str) -> None:
        ticks.append(supervisor.alive)
        leave(name)

    monkeypatch.setattr(store.hosts, "leave", noted)
    asked.set()
    assert Agent(store, supervisor, clock).run(asked) == agent.DONE
    assert ticks == [False] and [row.state for row in store.hosts.all()] == [AWAY]
