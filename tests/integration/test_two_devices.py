"""Two logical CPU devices: submissions spread over both, and move from one to the other without losing a bit."""

import os
import random
import signal
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.integration.pooled import ALICE, BOB, Net, Pool
from unifiednn_core.base.paths import DEVICES_SETTING, Home
from unifiednn_core.machine.cores import own_cores
from unifiednn_core.machine.devices import devices_of_host
from unifiednn_core.runtime import supervisor
from unifiednn_core.spec.lifecycle import ENDED
from unifiednn_core.spec.pooling import Pooling
from unifiednn_core.spec.run import CheckpointSpec
from unifiednn_core.store.devices import AWAY

pytestmark = pytest.mark.skipif(len(own_cores()) < 2, reason="two devices need two cores")
HERS, HIS = Net("alpha", seed=1), Net("alpha", seed=2)
"""Of two people; with one name they are held before the same step."""


@pytest.fixture
def pool(home: Home, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pool]:
    monkeypatch.setenv(DEVICES_SETTING, "cpu:0,cpu:1")
    monkeypatch.setattr(supervisor, "TICK_S", 0.1)
    monkeypatch.setattr(supervisor, "DEVICES_AGAIN_S", 0.2)
    pool = Pool(home)
    yield pool
    pool.close()


def worker_of(pool: Pool, run_id: str) -> int:
    """Process id of the worker that trains a run."""
    hybrid, _ = pool.store.hybrids.get(pool.row(run_id).hybrid_id or run_id)
    assert hybrid.worker_pid is not None
    return hybrid.worker_pid


def is_away(pool: Pool, device: str) -> bool:
    return any(row.state == AWAY for row in pool.store.devices.all() if row.name == device)


def cores_of(pid: int) -> set[tuple[int, ...]]:
    """Cores that the kernel allows the threads of a process: one set if all have the same."""
    return {tuple(sorted(os.sched_getaffinity(int(task.name)))) for task in Path(f"/proc/{pid}/task").iterdir()}


@pytest.mark.parametrize("keeps", [True, False], ids=["own cores", "all cores"])
def test_two_submissions_train_at_once_on_devices_with_cores_of_their_own(pool: Pool, keeps: bool) -> None:
    """With `all cores`, the control, devices have no cores of their own."""
    devices = [one if keeps else replace(one, cpus=()) for one in devices_of_host()]
    pool.devices = lambda: devices
    pool.store.devices.write(devices)
    runs = [pool.submit(ALICE, HERS), pool.submit(BOB, HIS)]
    pool.start_and_hold("alpha", 5)
    pool.until(lambda: all(pool.row(run_id).steps_done == 4 for run_id in runs), "fourth step of both")
    found = [pool.store.hybrids.get(place)[0] for place in pool.places(*runs)]
    allowed = {hybrid.device: cores_of(hybrid.worker_pid or 0) for hybrid in found}
    everything = tuple(sorted(own_cores()))
    assert allowed == {one.name: {tuple(one.cpus) if keeps else everything} for one in devices}
    assert keeps is not any(set(devices[0].cpus) & set(devices[1].cpus) or not one.cpus for one in devices)
    pool.go_on(5)
    pool.finish()
    assert pool.wrong() == {}


@pytest.mark.slow
@pytest.mark.parametrize("hybrid", ["shared", "private"])
def test_what_trains_on_a_device_that_is_drained_goes_on_on_the_other_after_its_step(pool: Pool, hybrid: str) -> None:
    run_id = pool.submit(ALICE, HERS, hybrid=hybrid)
    pool.start_and_hold("alpha", 5)
    [first] = pool.attempts(run_id)
    pool.service.devices.drain_device(first.device)
    place = pool.row(run_id).hybrid_id or run_id
    pool.until(lambda: pool.row(run_id).leaving or pool.store.hybrids.get(place)[0].leaving, "order to leave")
    pool.go_on(5)
    pool.finish()
    assert pool.wrong() == {}
    stays = [(attempt.device, attempt.from_step) for attempt in pool.attempts(run_id)]
    [other] = {"cpu:0", "cpu:1"} - {first.device}
    assert stays == [(first.device, 0), (other, 5)], "it leaves after the step that it was in, and repeats none"
    said = [event.message for event in pool.service.runs.observe(run_id).events]
    assert any(f"{first.device} is drained" in text for text in said), said
    late = pool.submit(BOB, HIS)
    pool.finish()
    assert [attempt.device for attempt in pool.attempts(late)] == [other], "nothing new comes to it"


@pytest.mark.slow
@pytest.mark.parametrize("hybrid", ["shared", "private"])
def test_a_device_that_goes_away_loses_nothing(pool: Pool, hybrid: str) -> None:
    often = CheckpointSpec(every_steps=2)
    pooling = Pooling()
    pooling = pooling.model_copy(update={"hybrid": pooling.hybrid.model_copy(update={"checkpoint": often})})
    pool.store.hybrids.set_pooling(pooling, "")
    stayer, goer = devices_of_host()
    pool.devices = lambda: [stayer, goer]
    own = {"checkpoint": often.model_dump()} if hybrid == "private" else {}
    hers = pool.submit(ALICE, HERS, device=goer.name, hybrid=hybrid, **own)
    pool.start_and_hold("alpha", 9)
    pool.until(lambda: pool.row(hers).checkpoint_step, "checkpoint")
    pool.devices = lambda: [stayer]
    pool.until(
        lambda: {row.name: row.state for row in pool.store.devices.all()}[goer.name] == AWAY, "loss of the device"
    )
    pid = worker_of(pool, hers)
    his = pool.submit(BOB, replace(HIS, name="bravo"))
    pool.finish(his)
    os.kill(pid, 0)  # whatever trains there goes on as long as it can
    os.kill(pid, signal.SIGKILL)
    pool.until(lambda: "away" in pool.waits_for(hers), "reason to wait")
    assert pool.waits_for(hers) == f"{goer.name}; {goer.name} is away", "it asked for this very device"
    pool.devices = lambda: [stayer, goer]
    pool.go_on(9)
    pool.finish()
    assert pool.wrong() == {}
    assert [attempt.device for attempt in pool.attempts(his)] == [stayer.name]
    first, second = pool.attempts(hers)
    assert (first.device, second.device) == (goer.name, goer.name) and 2 <= second.from_step <= 8


@pytest.mark.slow
def test_who_asked_for_any_device_goes_on_elsewhere_after_the_death_of_its_own(pool: Pool) -> None:
    devices = devices_of_host()
    pool.devices = lambda: devices
    run_id = pool.submit(ALICE, HERS)
    pool.start_and_hold("alpha", 5)
    [first] = pool.attempts(run_id)
    pool.devices = lambda: [one for one in devices if one.name != first.device]
    pool.until(lambda: is_away(pool, first.device), "loss of the device")
    os.kill(worker_of(pool, run_id), signal.SIGKILL)
    pool.go_on(5)
    pool.finish()
    assert pool.wrong() == {}
    assert pool.attempts(run_id)[-1].device != first.device


def begins_again(pool: Pool, run_id: str, attempt: int) -> bool:
    return pool.row(run_id).attempt > attempt or pool.state(run_id) in ENDED


def moved(pool: Pool, seed: int) -> None:
    """Let a network leave its hybrid at random steps, by order or because its device is drained."""
    numbers = random.Random(seed)
    steps = sorted(numbers.sample(range(2, HERS.steps), 4))
    run_id = pool.submit(ALICE, HERS)
    resident = pool.submit(BOB, Net("bravo", seed=3, epochs=300))
    pool.start_and_hold("alpha", *steps)
    for step in steps:
        pool.until_held(step)
        hybrid, _ = pool.store.hybrids.get(pool.row(run_id).hybrid_id or "")
        attempt = pool.row(run_id).attempt
        drains = numbers.random() < 0.5
        if drains:
            pool.service.devices.drain_device(hybrid.device or "")
        else:
            pool.store.workers.ask_to_leave(hybrid.id, [(run_id, "alpha")], "It was asked to.")
        pool.until(lambda: pool.row(run_id).leaving, "order to leave")
        pool.go_on(step)
        pool.until(partial(begins_again, pool, run_id, attempt), "new place")
        if drains:
            pool.service.devices.ready_device(hybrid.device or "")
    pool.finish()
    assert pool.wrong() == {}
    assert [attempt.from_step for attempt in pool.attempts(run_id)] == [0, *steps], "no step is trained twice"
    assert pool.row(resident).attempt >= 1


@pytest.mark.slow
def test_any_sequence_of_moves_ends_with_the_bits_of_alone(pool: Pool) -> None:
    moved(pool, 0)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 21))
def test_any_of_many_sequences_of_moves_ends_with_the_bits_of_alone(pool: Pool, seed: int) -> None:
    moved(pool, seed)
