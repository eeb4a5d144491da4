"""What an operator sees when the worker dies, and how one of the networks is thrown away, in a real browser."""

import os
import signal

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Server
from tests.browser.test_first_light import points, wait_for
from unifiednn_core.base.errors import NotFound
from unifiednn_core.service.facade import Service
from unifiednn_core.spec.lifecycle import State
from unifiednn_core.spec.run import CheckpointSpec

pytestmark = [pytest.mark.browser, pytest.mark.long, pytest.mark.timeout(400)]


def submit_a_long_run(service: Service) -> str:
    spec = service.library.prepare_samples()
    parts = [
        part.model_copy(update={"hyperparameters": part.hyperparameters.model_copy(update={"epochs": 500})})
        for part in spec.submodels
        if part.name != "transformer"  # its LR schedule ends with its epochs
    ]
    return service.runs.submit(
        spec.model_copy(update={"submodels": tuple(parts), "checkpoint": CheckpointSpec(every_steps=5)})
    )


def test_a_killed_worker_is_replaced_and_one_network_thrown_away(server: Server, page: Page) -> None:
    service = Service.open(server.home)
    run_id = submit_a_long_run(service)
    page.goto(f"{server.url}/run?run={run_id}")
    wait_for(page, lambda: all(part.checkpoint_step for part in service.runs.observe(run_id).submodels), 90)

    worker_pid = service.store.hybrids.get(run_id)[0].worker_pid
    assert worker_pid is not None
    os.kill(worker_pid, signal.SIGKILL)
    expect(page.get_by_text("Recovered once")).to_be_visible(timeout=60_000)
    wait_for(page, lambda: service.runs.observe(run_id).state is State.RUNNING, 60)
    before = points(page)
    wait_for(page, lambda: points(page) > before, 60)

    page.get_by_role("button", name="Stop lenet").first.click()
    page.get_by_role("button", name="Discard…").click()
    discard = page.get_by_role("dialog").get_by_role("button", name="Discard", exact=False).last
    expect(discard).to_be_disabled()
    field = page.get_by_label("Type its name to confirm")
    field.fill("lenet")
    field.press("Enter")
    page.wait_for_timeout(2500)  # the page behind it draws itself anew every second
    expect(field).to_have_value("lenet")
    expect(discard).to_be_enabled()
    discard.click()

    def lenet() -> State:
        return next(part.state for part in service.runs.observe(run_id).submodels if part.name == "lenet")

    wait_for(page, lambda: lenet() is State.STOPPED, 30)
    with pytest.raises(NotFound):
        service.runs.artifact(run_id, "lenet")
    wait_for(page, lambda: not list(service.home.checkpoints(run_id, "lenet").glob("step-*")), 30)
    service.runs.stop(run_id)
    wait_for(page, lambda: service.runs.observe(run_id).state is State.STOPPED, 60)
    assert service.runs.artifact(run_id, "resnet").is_file()
    service.close()
