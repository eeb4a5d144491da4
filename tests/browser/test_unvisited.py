"""A server whose pages nobody opens, as after a reboot at night."""

import pytest

from tests.browser.conftest import Server
from tests.waiting import wait_until
from unifiednn_core.service.facade import Service
from unifiednn_core.spec.lifecycle import ENDED, State

pytestmark = [pytest.mark.slow, pytest.mark.timeout(200)]


def test_what_waits_trains_although_nobody_visits(server: Server) -> None:
    server.kill()
    service = Service.open(server.home)  # without a supervisor: nothing starts here
    try:
        spec = service.library.prepare_samples()
        run_id = service.runs.submit(spec.model_copy(update={"submodels": spec.submodels[:1]}))
        assert service.runs.observe(run_id).state is State.QUEUED
        server.start()
        log = server.home.root / "server.log"
        wait_until(lambda: service.runs.observe(run_id).state in ENDED, told=log.read_text)
        assert service.runs.observe(run_id).state is State.COMPLETED
    finally:
        service.close()
