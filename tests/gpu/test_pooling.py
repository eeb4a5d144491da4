"""Submissions of two people on GPUs: they meet in one worker, and go from one GPU to an equal one."""

from collections.abc import Iterator

import pytest
import torch

from tests.integration.pooled import ALICE, BOB, Net, Pool
from unifiednn_core.base.paths import Home
from unifiednn_core.runtime import supervisor
from unifiednn_core.runtime.launchers import LocalLauncher

# Kernels without a deterministic twin only warn.
pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]
LONG = 20_000
"""Epochs that outlast whatever happens to them."""


@pytest.fixture
def pool(cuda: torch.device, home: Home, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pool]:
    """Its workers are new processes: a fork of a process that may have used CUDA could not."""
    monkeypatch.setattr(supervisor, "TICK_S", 0.1)
    pool = Pool(home, launcher=LocalLauncher)
    yield pool
    pool.close()


def hashes(pool: Pool, *run_ids: str) -> list[str | None]:
    pool.finish(*run_ids)
    return [pool.row(run_id).state_sha256 for run_id in run_ids]


def test_two_people_meet_in_one_worker_with_the_bits_of_alone(pool: Pool) -> None:
    nets = Net("alpha", seed=1, epochs=200), Net("bravo", seed=2, epochs=200)
    asked = {"device": "cuda:0", "hybrid": "private"}
    alone = [pool.submit(person, net, **asked) for person, net in zip((ALICE, BOB), nets, strict=True)]
    pool.start()
    expected = hashes(pool, *alone)
    hers = pool.submit(ALICE, Net("long", seed=3, epochs=LONG), device="cuda:0")
    pool.until(lambda: pool.row(hers).steps_done, "first step")
    runs = [pool.submit(person, net, device="cuda:0") for person, net in zip((ALICE, BOB), nets, strict=True)]
    assert hashes(pool, *runs) == expected and None not in expected
    [hybrid] = pool.hybrids()
    assert pool.places(hers, *runs) == [hybrid.id] * 3 and hybrid.device == "cuda:0"
    assert hybrid.peak_memory_bytes is None or hybrid.peak_memory_bytes > 0


def test_what_trains_on_a_gpu_that_is_drained_goes_on_on_an_equal_one_with_the_same_bits(pool: Pool) -> None:
    gpus = [row for row in pool.store.devices.all() if row.type == "cuda"]
    if len(gpus) < 2 or gpus[0].kind != gpus[1].kind:
        pytest.skip("there are no two equal GPUs here")
    net = Net("alpha", seed=1, epochs=2_000)
    for gpu in gpus[2:]:
        pool.service.devices.drain_device(gpu.name)
    alone = pool.submit(ALICE, net, device="cuda", hybrid="private")
    pool.start()
    expected = hashes(pool, alone)
    goer = pool.submit(ALICE, net, device="cuda")
    pool.until(lambda: pool.row(goer).steps_done, "first step")
    [first] = pool.attempts(goer)
    pool.service.devices.drain_device(first.device)
    assert hashes(pool, goer) == expected
    stays = pool.attempts(goer)
    assert [stay.device for stay in stays] == [first.device, *({gpus[0].name, gpus[1].name} - {first.device})]
    assert stays[1].from_step > 0 and pool.row(goer).steps_done == net.steps, "no step is trained twice"


def test_two_submissions_train_at_once_on_two_gpus(pool: Pool) -> None:
    gpus = [row.name for row in pool.store.devices.all() if row.type == "cuda"]
    if len(gpus) < 2:
        pytest.skip("there are no two GPUs here")
    runs = [
        pool.submit(person, Net("alpha", seed, epochs=LONG), device="cuda") for seed, person in enumerate((ALICE, BOB))
    ]
    pool.start()
    pool.until(lambda: all(pool.row(run_id).steps_done for run_id in runs), "first step of both")
    devices = [pool.store.hybrids.get(place)[0].device for place in pool.places(*runs)]
    assert len(set(devices)) == 2 and set(devices) <= set(gpus)
