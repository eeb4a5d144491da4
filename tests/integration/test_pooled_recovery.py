"""Nothing that happens to the worker of a shared hybrid stops anybody in it: all go on, with the bits of alone."""

import os
import signal
from collections.abc import Iterator

import pytest

from tests.integration.pooled import ALICE, BOB, CAROL, Net, Pool
from unifiednn_core.base.errors import IllegalTransition
from unifiednn_core.base.paths import DEVICES_SETTING, Home
from unifiednn_core.runtime import supervisor
from unifiednn_core.spec.lifecycle import State
from unifiednn_core.spec.pooling import Pooling
from unifiednn_core.spec.run import CheckpointSpec, HybridSettings, PolicySpec
from unifiednn_core.store.workers import Workers

ALPHA, BRAVO, CHARLIE = (Net(name, seed) for seed, name in enumerate(("alpha", "bravo", "charlie")))
TOGETHER = HybridSettings(
    policy=PolicySpec(name="round_robin"), lanes=1, checkpoint=CheckpointSpec(every_s=3600, every_steps=5)
)


@pytest.fixture
def pool(home: Home, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pool]:
    monkeypatch.setattr(supervisor, "TICK_S", 0.1)
    pool = Pool(home)
    pool.store.hybrids.set_pooling(Pooling(hybrid=TOGETHER), by="")
    yield pool
    pool.close()


def kill(pool: Pool) -> None:
    """Kill the only worker that there is."""
    [hybrid] = pool.store.workers.held()
    assert hybrid.worker_pid is not None
    os.kill(hybrid.worker_pid, signal.SIGKILL)


def test_all_members_go_on_in_the_same_hybrid_after_its_worker_was_killed(pool: Pool) -> None:
    hers, his = pool.submit(ALICE, ALPHA), pool.submit(BOB, BRAVO)
    pool.start_and_hold("alpha", 17)
    pool.until(lambda: all(pool.row(run_id).checkpoint_step for run_id in (hers, his)), "checkpoint of both")
    kill(pool)
    pool.go_on(17)
    pool.finish()
    assert pool.wrong() == {}
    [hybrid] = pool.hybrids()
    assert pool.places(hers, his) == [hybrid.id] * 2
    assert (hybrid.attempt, hybrid.recoveries) == (2, 1)
    for run_id in (hers, his):
        [first, second] = pool.attempts(run_id)
        assert first.from_step == 0 < second.from_step, "it goes on from a checkpoint"


@pytest.mark.slow
def test_who_was_about_to_be_paused_is_paused_by_the_death_and_the_others_go_on(pool: Pool) -> None:
    hers, his = pool.submit(ALICE, ALPHA), pool.submit(BOB, BRAVO)
    pool.start_and_hold("alpha", 17)  # in the middle of a step; the worker cannot reach the boundary
    pool.service.acting_as(ALICE).runs.pause(hers)
    assert pool.state(hers) is State.PAUSING
    kill(pool)
    pool.until(lambda: pool.state(hers) is State.PAUSED, "pause")
    assert pool.row(hers).hybrid_id is None
    assert pool.store.commands.open(hers) == []
    pool.go_on(17)
    pool.finish(his)
    assert pool.state(hers) is State.PAUSED, "it waits for its person"
    with pytest.raises(IllegalTransition, match="save"):  # it would be acknowledged and never take effect
        pool.service.acting_as(ALICE).runs.save(hers)
    pool.service.acting_as(ALICE).runs.resume(hers)
    pool.finish()
    assert pool.wrong() == {}


@pytest.mark.slow
def test_without_that_the_pause_would_wait_for_nobody(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Workers, "_let_go", lambda *_: None)
    hers, his = pool.submit(ALICE, ALPHA), pool.submit(BOB, BRAVO)
    pool.start_and_hold("alpha", 17)
    pool.service.acting_as(ALICE).runs.pause(hers)
    pool.supervisor.stop()
    kill(pool)
    [hybrid] = pool.store.workers.held()
    pool.store.workers.lose(hybrid.id, "killed", "none")
    assert pool.row(hers).hybrid_id == pool.row(his).hybrid_id == hybrid.id
    assert len(pool.store.commands.open(hers)) == 1
    monkeypatch.undo()
    pool.start()


@pytest.mark.slow
def test_a_stop_that_the_worker_did_not_live_to_see_is_obeyed_by_the_next(pool: Pool) -> None:
    hers, his = pool.submit(ALICE, ALPHA), pool.submit(BOB, BRAVO)
    pool.start_and_hold("alpha", 17)
    pool.until(lambda: pool.row(his).checkpoint_step, "checkpoint")
    pool.service.acting_as(BOB).runs.stop(his)
    kill(pool)
    pool.go_on(17)
    pool.finish()
    assert pool.state(his) is State.STOPPED
    assert 0 < pool.row(his).steps_done < BRAVO.steps
    del pool.nets[his]
    assert pool.wrong() == {}
    assert pool.state(hers) is State.COMPLETED


@pytest.mark.slow
def test_a_device_drained_while_its_worker_is_dead_gives_all_back_to_the_line(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "TICK_S", 0.1)
    monkeypatch.setenv(DEVICES_SETTING, "cpu:0,cpu:1")
    pool = Pool(home)
    try:
        pool.store.hybrids.set_pooling(Pooling(hybrid=TOGETHER), by="")
        pool.store.devices.set_state("cpu:1", "draining")
        runs = [pool.submit(person, net) for person, net in ((ALICE, ALPHA), (BOB, BRAVO), (CAROL, CHARLIE))]
        pool.start_and_hold("alpha", 17)
        pool.supervisor.stop()
        kill(pool)
        pool.store.devices.set_state("cpu:0", "draining")
        pool.store.devices.set_state("cpu:1", "ready")
        pool.go_on(17)
        pool.start()
        pool.finish()
        assert pool.wrong() == {}
        for run_id in runs:
            assert [one.device for one in pool.attempts(run_id)] == ["cpu:0", "cpu:1"]
        assert [hybrid.device for hybrid in pool.hybrids()] == ["cpu:0", "cpu:1"]
    finally:
        pool.store.devices.set_state("cpu:0", "ready")
        pool.close()
