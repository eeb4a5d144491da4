"""Submissions of two people on a GPU: they meet in one worker."""

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
