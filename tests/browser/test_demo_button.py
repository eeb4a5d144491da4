"""While the demo is prepared, its steps stand where its button was."""

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import PATIENCE_MS, Server
from unifiednn_core.service.facade import Service

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(200)]
LOOK = """() => {
  const steps = document.querySelector('.u-busy');
  const buttons = [...document.querySelectorAll('[class*="st-key-demo-"] button')];
  return steps && {steps: steps.checkVisibility(), buttons: buttons.filter(one => one.checkVisibility()).length};
}"""


def test_the_button_gives_way_to_the_steps(server: Server, page: Page) -> None:
    page.goto(server.url)
    page.get_by_role("button", name="Try the demo").click(timeout=PATIENCE_MS)
    assert page.wait_for_function(LOOK, timeout=PATIENCE_MS).json_value() == {"steps": True, "buttons": 0}
    page.wait_for_url("**/run*", timeout=60_000)
    expect(page.locator("h1").first).to_be_visible(timeout=PATIENCE_MS)
    service = Service.open(server.home)
    for run in service.runs.runs():
        service.runs.discard(run.run_id)
    service.close()
