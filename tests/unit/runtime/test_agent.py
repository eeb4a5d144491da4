import signal
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from tests.clock import SimulatedClock
from unifiednn_core.runtime import agent
from unifiednn_core.runtime.agent import GIVES_UP_S, Agent
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
    supervisor: Any = SimpleNamespace(held=held, park=lambda: None, lease=SimpleNamespace(host="h"))
    store: Any = SimpleNamespace(hosts=SimpleNamespace(leave=leave))
    Agent(store, supervisor, clock).park()
    me = WorkerIdentity(7, 1.0, "boot")
    assert sent[0] == (me, signal.SIGTERM) and set(sent[1:]) == {(me, signal.SIGKILL)}
    assert clock.utc_s() >= 1000.0 + GIVES_UP_S
