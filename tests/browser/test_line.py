"""The line by mouse, addresses that are none, and a server that goes away, in a real browser before one server."""

from dataclasses import replace

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Server, seeded
from tests.ui import fake_views
from unifiednn_core.base.paths import Home
from unifiednn_core.store import Store

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.timeout(200)]
NAMES = ("alpha", "beta", "gamma")


@pytest.fixture
def home(home: Home, monkeypatch: pytest.MonkeyPatch) -> Home:
    """Three runs that wait for a device that nobody has."""
    waits = fake_views.queued()
    runs = (
        replace(waits, run_id=f"r-{name}", name=name, device="cuda:7", created_at_s=waits.created_at_s + place)
        for place, name in enumerate(NAMES)
    )
    return seeded(home, monkeypatch, *runs)


def line_of(home: Home) -> list[str]:
    store = Store.open(home)
    try:
        return [run.name for run, _ in store.workers.waiting()]
    finally:
        store.close()


def expect_line(page: Page, *names: str) -> None:
    links = page.locator('[class*="st-key-row-line-"] [data-testid="stPageLink"]')
    expect(links).to_have_text(list(names))


def test_the_line_is_moved_and_addresses_and_connections_that_fail_say_so(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/queue")
    expect_line(page, *NAMES)
    page.get_by_role("button", name="Run gamma next").click()
    expect_line(page, "gamma", "alpha", "beta")
    assert line_of(server.home) == ["gamma", "alpha", "beta"]
    page.get_by_role("button", name="Place of gamma").click()
    place = page.get_by_role("spinbutton", name="Place in the queue")
    place.fill("3")
    place.press("Enter")
    page.get_by_role("button", name="Move", exact=True).click()
    expect_line(page, *NAMES)
    assert line_of(server.home) == list(NAMES)

    page.goto(f"{server.url}/now")
    expect(page.get_by_role("heading", name="Now")).to_be_visible()
    page.goto(f"{server.url}/nowhere")
    expect(page.get_by_text("There is no page “nowhere” here.")).to_be_visible()
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.get_by_role("button", name="Go to the first page").click()
    expect(page.get_by_role("heading", name="Now")).to_be_visible()

    lost = page.get_by_text("No connection to the server. Training goes on.")
    expect(lost).to_be_hidden()
    server.kill()
    expect(lost).to_be_visible()
    page.wait_for_timeout(5000)  # Streamlit's own dialog comes after a few attempts
    expect(page.get_by_text("Connection error")).to_be_hidden()
    server.start()
    expect(lost).to_be_hidden()
