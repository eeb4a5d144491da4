"""Browser notifications, in Chromium with the permission granted."""

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.conftest import Server
from tests.unit.service.kit import add_run, sha
from unifiednn_core.service.facade import Service
from unifiednn_core.spec.lifecycle import Event

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.timeout(200)]
RECORD = """
window.shown = [];
window.Notification = class extends EventTarget {
  static permission = "default";
  static async requestPermission() { return (this.permission = window.answer ?? "granted"); }
  constructor(title, options) { super(); window.shown.push([title, options.tag]); }
};
"""
RUN, OTHER = "20260101-000000-aaaa", "20260101-000001-bbbb"


def seed(service: Service, run: str, name: str) -> None:
    """A run of one sub-model that trains."""
    for kind in ("model", "data"):
        columns = {"sha256": sha(f"{name}-{kind}"), "kind": kind, "filename": name, "format": "pt", "size_bytes": 1}
        service.store.library.add_file(**columns, facts={}, owner="")
    add_run(service.store, service.home, run, "", {name: ""})


def test_the_end_of_a_run_is_told_once_to_who_allowed_it(server: Server, browser: Browser) -> None:
    service = Service.open(server.home)
    seed(service, RUN, "alpha")
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    context.add_init_script(RECORD)
    page, second = context.new_page(), context.new_page()
    for one in (page, second):
        one.goto(server.url)
    switch = page.get_by_role("button", name="Notify me of my runs")
    expect(switch).to_be_visible()
    service.store.runs.transition(RUN, None, Event.FAIL)  # before it is switched on: no news
    switch.click()
    expect(page.get_by_role("button", name="Notifications are on")).to_be_visible()
    page.wait_for_function("localStorage.getItem('unifiednn-notify-cursor') !== null")
    second.reload()
    seed(service, OTHER, "bravo")
    service.store.runs.transition(OTHER, "bravo", Event.COMPLETE)
    service.store.runs.transition(OTHER, None, Event.COMPLETE)
    page.get_by_role("link", name="Library").click()  # another page of the same tab goes on listening
    cursor = service.notifications.news().cursor
    page.wait_for_function(f"+localStorage.getItem('unifiednn-notify-cursor') >= {cursor}")
    shown = [*page.evaluate("window.shown"), *second.evaluate("window.shown")]
    assert shown == [["together is complete", f"{OTHER} run.completed"]]
    page.get_by_role("button", name="Notifications are on").click()
    expect(page.get_by_role("button", name="Notify me of my runs")).to_be_visible()
    context.close()
    service.close()
    forbidding = browser.new_context()
    forbidding.add_init_script(RECORD + "window.answer = 'denied';")
    page = forbidding.new_page()
    page.goto(server.url)
    page.get_by_role("button", name="Notify me of my runs").click()
    expect(page.get_by_role("button", name="The browser blocks notifications")).to_be_disabled()
    forbidding.close()
