"""A server whose pages nobody opens, as after a reboot at night: it trains what waits and keeps nothing of it."""

import signal
from collections import Counter
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import torch

from tests.browser.conftest import Server
from tests.integration.forked_main import watches
from tests.waiting import wait_until
from unifiednn_core.service.facade import Service
from unifiednn_core.spec.lifecycle import ENDED, State
from unifiednn_core.spec.run import RunSpec

pytestmark = [pytest.mark.slow, pytest.mark.timeout(200)]
RUNS = 5
"""100 by hand, with a longer timeout."""
GROWTH_BYTES = 16 * 2**20


def test_what_waits_trains_although_nobody_visits(server: Server) -> None:
    server.kill()
    service = Service.open(server.home)  # without a supervisor: nothing starts here
    log = server.home.root / "server.log"
    try:
        spec = service.library.prepare_samples()
        run_id = service.runs.submit(spec.model_copy(update={"submodels": spec.submodels[:1]}))
        assert service.runs.observe(run_id).state is State.QUEUED
        server.start()
        wait_until(lambda: service.runs.observe(run_id).state in ENDED, told=log.read_text)
        assert service.runs.observe(run_id).state is State.COMPLETED
    finally:
        service.close()
    assert server.process is not None
    server.process.send_signal(signal.SIGUSR1)
    wait_until(lambda: "most recent call first" in log.read_text(), told=log.read_text)
    assert watches(log.read_text()) == dict.fromkeys(("supervisor", "device_watch", "webhooks", "certifier"), 1)


@pytest.mark.new_interpreters  # workers that the product's own launcher has forked
def test_runs_leave_no_file_no_thread_and_no_memory_in_the_server(server: Server, tmp_path: Path) -> None:
    torch.save(torch.nn.Sequential(torch.nn.Linear(4, 2)), tmp_path / "net.pt")
    torch.save({"inputs": torch.ones(4, 4), "targets": torch.arange(4) % 2}, tmp_path / "data.pt")
    parts = [{"name": "net", "model": "net.pt", "train_data": "data.pt", "hyperparameters": {"epochs": 1}}]
    spec = RunSpec.model_validate({"name": "tiny", "submodels": parts})
    assert server.process is not None
    process, log = psutil.Process(server.process.pid), server.home.root / "server.log"
    service = Service.open(server.home)

    def train() -> None:
        run_id = service.runs.submit(spec, tmp_path)
        wait_until(lambda: service.runs.observe(run_id).state in ENDED, told=log.read_text)
        assert service.runs.observe(run_id).state is State.COMPLETED

    def held() -> Counter[str]:
        """Descriptors by kind, and threads; not the connections to the store, of which a pool keeps a few."""
        kinds = ["thread"] * process.num_threads()
        for file in Path(f"/proc/{process.pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # closed meanwhile
                kinds.append(str(file.readlink()).partition(":")[0])
        return Counter(kind for kind in kinds if str(server.home.database.parent) not in kind)

    try:
        for _ in range(2):  # all that is opened once
            train()
        wait_until(lambda: len(process.children(recursive=True)) == 1)  # the template
        before, before_bytes = held(), process.memory_info().rss
        for _ in range(RUNS):
            train()
        wait_until(lambda: held() <= before, told=lambda: f"It began with {before} and ended with {held()}.")
        assert process.memory_info().rss < before_bytes + GROWTH_BYTES
    finally:
        service.close()
