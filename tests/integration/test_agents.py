"""Two agents over one store, in processes of their own: any host may end or die, and every network has its bits."""

import json
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.integration.forking import LEASES, fork
from tests.integration.mishaps import HOLD
from tests.integration.pooled import ALICE, BOB, Net, Pool
from unifiednn_core.base.paths import DATABASE_SETTING, Home
from unifiednn_core.runtime import supervisor
from unifiednn_core.runtime.launchers import identity_of, is_alive
from unifiednn_core.spec.devices import host_of
from unifiednn_core.spec.pooling import Pooling
from unifiednn_core.spec.run import CheckpointSpec
from unifiednn_core.store import leases
from unifiednn_core.store.devices import AWAY
from unifiednn_core.store.workers import WorkerIdentity

SHORT = {"RENEW_S": 0.3, "GAP_S": 3.0, "STOPS_S": 4.0, "LOST_S": 6.0}
HERS, HIS = Net("alpha", seed=1), Net("bravo", seed=2)
OFTEN = CheckpointSpec(every_steps=2)


class Cluster:
    """A server that offers no device, and agents as processes."""

    def __init__(self, home: Home):
        self.home = home
        self.pool = Pool(home, devices=list)
        self.environment = {
            "UNIFIEDNN_HOME": str(home.root),
            DATABASE_SETTING: home.database_url,
            LEASES: json.dumps(SHORT),
        }
        self.agents: dict[str, int] = {}
        pooling = Pooling()
        hybrid = pooling.hybrid.model_copy(update={"checkpoint": OFTEN})
        self.pool.store.hosts.all()
        self.pool.store.hybrids.set_pooling(pooling.model_copy(update={"hybrid": hybrid}), "")

    def start(self, host: str) -> None:
        """Start the agent of a host, and wait until it offers its device."""
        self.home.run(host).mkdir(parents=True, exist_ok=True)
        self.agents[host] = fork("agent", self.home, host, self.environment)
        self.pool.until(lambda: self.state(f"{host}/cpu") == "ready", f"device of {host}")

    def state(self, device: str) -> str:
        return next((row.state for row in self.pool.store.devices.all() if row.name == device), AWAY)

    def ended(self, host: str) -> bool:
        return not _exists(self.agents[host])

    def worker_of(self, run_id: str) -> WorkerIdentity:
        hybrid, _ = self.pool.store.hybrids.get(self.pool.row(run_id).hybrid_id or run_id)
        assert hybrid.worker_pid is not None
        return identity_of(hybrid.worker_pid)

    def hosts(self, run_id: str) -> list[str]:
        return [host_of(attempt.device) for attempt in self.pool.attempts(run_id)]

    def signal(self, host: str, number: int, *workers: WorkerIdentity) -> None:
        """Signal the agent of a host, and these workers of it."""
        for pid in (self.agents[host], *(worker.pid for worker in workers)):
            os.kill(pid, number)

    def hold(self, name: str, step: int) -> None:
        """Let workers that start from now on wait before a step of one network."""
        self.environment[HOLD] = f"{name}@{step}"

    def close(self) -> None:
        for pid in self.agents.values():
            if _exists(pid):
                os.kill(pid, signal.SIGCONT)
        self.pool.close()
        for host, pid in self.agents.items():
            if _exists(pid):
                os.kill(pid, signal.SIGTERM)
            self.pool.until(lambda host=host: self.ended(host), f"end of {host}")  # type: ignore[misc]


def _exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


@pytest.fixture
def cluster(home: Home, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setattr(supervisor, "TICK_S", 0.1)
    for name, value in SHORT.items():
        monkeypatch.setattr(leases, name, value)
    made = Cluster(home)
    made.pool.start()
    yield made
    made.close()


def test_runs_train_on_both_hosts_with_the_bits_of_one(cluster: Cluster) -> None:
    pool = cluster.pool
    cluster.hold("alpha", 5)
    for host in ("a", "b"):
        cluster.start(host)
    hers = pool.submit(ALICE, HERS)
    pool.until_held(5)
    [first] = cluster.hosts(hers)
    [other] = {"a", "b"} - {first}
    his = pool.submit(BOB, HIS, hybrid="private")
    third = pool.submit(BOB, replace(HIS, name="charlie", seed=3), device=first, hybrid="private")
    pool.finish(his)
    pool.go_on(5)
    pool.finish()
    assert pool.wrong() == {}
    assert [cluster.hosts(run_id) for run_id in (hers, his, third)] == [[first], [other], [first]]


@pytest.mark.slow
@pytest.mark.parametrize("hybrid", ["shared", "private"])
def test_when_a_host_dies_the_other_finishes_everything(cluster: Cluster, hybrid: str) -> None:
    pool, own = cluster.pool, {"checkpoint": OFTEN.model_dump()} if hybrid == "private" else {}
    cluster.hold("alpha", 9)
    cluster.start("a")
    hers = pool.submit(ALICE, HERS, hybrid=hybrid, **own)
    pool.until_held(9)
    pool.until(lambda: pool.row(hers).checkpoint_step, "checkpoint")
    cluster.start("b")
    his = pool.submit(BOB, HIS, device="b", hybrid=hybrid)
    cluster.signal("a", signal.SIGKILL, cluster.worker_of(hers))
    pool.go_on(9)
    pool.finish()
    assert pool.wrong() == {} and cluster.state("a/cpu") == AWAY
    assert cluster.hosts(hers) == ["a", "b"] and cluster.hosts(his) == ["b"]
    assert 2 <= pool.attempts(hers)[-1].from_step <= 8, "it goes on from its last checkpoint"


@pytest.mark.slow
def test_an_agent_that_is_killed_finds_its_workers_again(cluster: Cluster) -> None:
    pool = cluster.pool
    cluster.hold("alpha", 5)
    cluster.start("a")
    hers = pool.submit(ALICE, HERS)
    pool.until_held(5)
    worker = cluster.worker_of(hers)
    cluster.signal("a", signal.SIGKILL)
    pool.until(lambda: cluster.state("a/cpu") == AWAY, "loss of the host")
    assert is_alive(worker)
    cluster.start("a")
    assert cluster.worker_of(hers) == worker
    pool.go_on(5)
    pool.finish()
    assert pool.wrong() == {} and cluster.hosts(hers) == ["a"], "one attempt: it never stopped"


@pytest.mark.parametrize("hybrid", [pytest.param("shared", marks=pytest.mark.slow), "private"])
def test_an_agent_that_is_asked_to_end_gives_all_back_first(cluster: Cluster, hybrid: str) -> None:
    pool = cluster.pool
    cluster.hold("alpha", 5)
    cluster.start("a")
    hers = pool.submit(ALICE, HERS, hybrid=hybrid)
    pool.until_held(5)
    cluster.start("b")
    cluster.signal("a", signal.SIGTERM)
    place = pool.row(hers).hybrid_id or hers
    pool.until(lambda: pool.row(hers).leaving or pool.store.hybrids.get(place)[0].leaving, "order to leave")
    pool.go_on(5)
    pool.until(lambda: cluster.ended("a"), "end of the agent")
    assert cluster.state("a/cpu") == AWAY
    pool.finish()
    assert pool.wrong() == {}
    stays = [(host_of(attempt.device), attempt.from_step) for attempt in pool.attempts(hers)]
    assert stays == [("a", 0), ("b", 5)], "it repeats no step"


@pytest.mark.slow
def test_a_host_that_was_only_suspended_writes_nothing_when_it_returns(cluster: Cluster) -> None:
    pool = cluster.pool
    cluster.hold("alpha", 9)
    cluster.start("a")
    hers = pool.submit(ALICE, HERS)
    pool.until_held(9)
    pool.until(lambda: pool.row(hers).checkpoint_step, "checkpoint")
    cluster.start("b")
    worker = cluster.worker_of(hers)
    cluster.signal("a", signal.SIGSTOP, worker)
    pool.go_on(9)
    pool.finish()
    found = json.dumps([pool.wrong(), pool.row(hers).attempt, pool.row(hers).steps_done, cluster.hosts(hers)])
    cluster.signal("a", signal.SIGCONT, worker)
    pool.until(lambda: not is_alive(worker), "end of the fenced worker")
    pool.until(lambda: cluster.state("a/cpu") == "ready", "return of the host")
    assert json.dumps([pool.wrong(), pool.row(hers).attempt, pool.row(hers).steps_done, cluster.hosts(hers)]) == found
    assert pool.wrong() == {} and cluster.hosts(hers) == ["a", "b"]
