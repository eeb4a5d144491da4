"""A PostgreSQL server that is killed under a worker: the worker lives on, and what it has to write waits."""

import signal
from collections.abc import Iterator

import pytest

from tests.databases import POSTGRESQL, Databases
from tests.integration.pooled import ALICE, Net, Pool
from unifiednn_core.base.paths import Home
from unifiednn_core.runtime import supervisor
from unifiednn_core.spec.lifecycle import State

ALPHA = Net("alpha", 0)


@pytest.fixture
def pool(home: Home, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pool]:
    monkeypatch.setattr(supervisor, "TICK_S", 0.1)
    pool = Pool(home)
    yield pool
    pool.close()


def logs(pool: Pool) -> list[str]:
    return [path.read_text(errors="replace") for path in pool.home.root.rglob("worker.log")]


@pytest.mark.slow
@pytest.mark.parametrize("kind", [POSTGRESQL], indirect=True, scope="module")
def test_a_worker_outlasts_its_database_and_nothing_is_lost_or_counted_twice(pool: Pool, postgresql: Databases) -> None:
    hers = pool.submit(ALICE, ALPHA)
    pool.start_and_hold("alpha", 5)
    postgresql.server.stop(signal.SIGKILL)
    try:
        pool.until(lambda: any("OperationalError" in log for log in logs(pool)), "trouble of the worker")
    finally:
        postgresql.server.start()
    pool.go_on(5)
    pool.finish()
    assert pool.state(hers) is State.COMPLETED
    assert pool.wrong() == {}
    [hybrid] = pool.hybrids()
    assert (hybrid.attempt, hybrid.recoveries) == (1, 0)
    alone = pool.submit(ALICE, ALPHA, hybrid="private")
    pool.finish()
    assert pool.row(hers).state_sha256 == pool.row(alone).state_sha256
    turns = pool.store.telemetry.history(hers, None).slices
    assert sum(turn.steps for turn in turns) == pool.row(hers).steps_total
