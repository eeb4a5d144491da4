"""A server whose pages nobody opens, as after a reboot at night."""

import time

import pytest

from tests.browser.conftest import Server
from unifiednn_core.service.facade import Service
from unifiednn_core.spec.lifecycle import ENDED, State

pytestmark = [pytest.mark.slow, pytest.mark.timeout(200)]
PATIENCE_S = 120.0


def test_what_waits_trains_although_nobody_visits(server: Server) -> None:
    server.kill()
    service = Service.open(server.home)  # without a supervisor: nothing starts here
    try:
        spec = service.library.prepare_samples()
        run_id = service.runs.submit(spec.model_copy(update={"submodels": spec.submodels[:1]}))
        assert service.runs.observe(run_id).state is State.QUEUED
        server.start()
        until_s = time.monotonic() + PATIENCE_S
        while service.runs.observe(run_id).state not in ENDED:
            assert time.monotonic() < until_s, (server.home.root / "server.log").read_text()
            time.sleep(0.2)
        assert service.runs.observe(run_id).state is State.COMPLETED
    finally:
        service.close()
