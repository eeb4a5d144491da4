"""The page of a run in a real browser: nothing moves, nothing is cut without its whole text, buttons do their work."""

import re
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import Server
from tests.browser.test_first_light import wait_for
from tests.browser.test_recovery import submit_a_long_run
from tests.ports import free_port
from tests.ui.fake_arms import FINGERPRINT
from tests.ui.fake_views import mid_flight, run, submodel
from tests.ui.seed import Seeded
from unifiednn_core.base.paths import Home
from unifiednn_core.service.facade import Service
from unifiednn_core.spec.lifecycle import State

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.timeout(200)]
LONG = "a_network_with_a_name_of_sixty_four_characters_that_goes_on_and_on"[:64]
# Texts that are wider than their place, without an ellipsis and the whole text as a tip.
CUT = """() => [...document.querySelectorAll('.u-row *, .u-strip *, .u-title h1')].filter(node =>
  node.children.length === 0 && node.scrollWidth > node.clientWidth + 1 && node.clientWidth > 1
  && !(getComputedStyle(node).textOverflow === 'ellipsis' && node.closest('[title]'))
  && !node.closest('h1, .u-head')).map(node => node.outerHTML.slice(0, 200))"""
FRESH = {"heartbeat_age_s": -600.0}
"""A beat in the future stays fresh, however slow the browser is."""
BOXES = "boxes => boxes.map(box => box.getBoundingClientRect()).filter(box => box.width)"


@pytest.fixture
def served(home: Home, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Server, Service]]:
    seeded = Seeded(home.create(), monkeypatch)
    names = ["lenet", "erin_transformer_small_24", LONG, *(f"net{place}" for place in range(11))]
    parts = [replace(submodel(at, name, 3, State.RUNNING), holds_device=at == 1) for at, name in enumerate(names)]
    parts[0] = submodel(0, "lenet", 10, State.COMPLETED)
    many = run(
        "r-many",
        State.RUNNING,
        tuple(parts),
        name=LONG,
        now_reason=f"{names[1]} is next.",
        created_at_s=time.time() - 1000,
        **FRESH,
    )
    seeded.listed = [many, replace(mid_flight(), fingerprint=FINGERPRINT, **FRESH)]  # type: ignore[arg-type]
    seeded.close()
    service = Service.open(home)
    service.devices.devices()
    service.devices.drain_device("cpu")  # the baseline of the test waits
    server = Server(home, free_port(), forked=True)
    server.start()
    yield server, service
    server.kill()
    service.close()


def opened(browser: Browser, server: Server, run_id: str, width: int, height: int) -> Page:
    page = browser.new_context(viewport={"width": width, "height": height}).new_page()
    page.goto(f"{server.url}/run?run={run_id}")
    expect(page.locator("#submodel-0")).to_be_attached()
    page.wait_for_timeout(1500)  # the first tick
    return page


def test_the_page_of_a_run(served: tuple[Server, Service], browser: Browser) -> None:
    server, service = served
    for width, height in ((1440, 900), (1280, 800), (390, 844)):
        page = opened(browser, server, "r-many", width, height)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(CUT) == []
        table = page.get_by_role("table", name="Sub-models").aria_snapshot()
        assert len(re.findall(r"- '?row ", table)) == 15 and table.count("- columnheader ") == 9
        heights = [box["height"] for box in page.locator(".u-row[id]").evaluate_all(BOXES)]
        assert width < 760 or max(heights) - min(heights) < 1, "long names break no row"
        stops = page.locator("[class*=st-key-stop-r-many-] button").evaluate_all(BOXES)
        assert len({box["x"] for box in stops[1:]}) == 1, "each action has one place in all rows"
        if width < 760:
            tops = [
                page.locator(one).first.evaluate_all(BOXES)[0]["y"] for one in (".u-row[id]", ".st-key-part-charts")
            ]
            assert tops[0] < tops[1], "sub-models come before the charts"
            page.evaluate("document.querySelector('#submodel-9').scrollIntoView()")  # a tick replaces it
            expect(page.locator(".u-done")).to_be_in_viewport()
        page.context.close()

    page = opened(browser, server, "r-live", 1280, 800)
    expect(page).to_have_title("74 % demo · UnifiedNN")
    buttons = [page.get_by_role("button", name=name).first for name in ("Run concurrent", "Run sequential")]
    before = [button.bounding_box() for button in buttons]
    buttons[0].dblclick()
    expect(buttons[0]).to_be_disabled()
    assert [button.bounding_box() for button in buttons] == before, "nothing moved under the pointer"
    assert [one.mode for one in service.runs.runs()].count("concurrent") == 1
    assert "sequential" not in [one.mode for one in service.runs.runs()]

    page.get_by_role("button", name="Pause resnet").first.click()
    expect(page.get_by_text("Pausing…").first).to_be_attached()
    assert service.runs.observe("r-live").submodels[1].state is State.PAUSING
    page.get_by_role("button", name="Stop transformer").first.click()
    page.get_by_role("button", name="Keep training").click()
    expect(page.get_by_role("dialog")).to_be_hidden()
    page.get_by_role("tab", name="Logs").click()
    expect(page.get_by_text("The worker wrote nothing so far")).to_be_visible()
    page.get_by_role("button", name="More actions").first.click()
    page.get_by_text("All runs").click()
    expect(page.get_by_role("heading", name="Runs", exact=True)).to_be_visible()
    tick = page.get_by_role("checkbox", name="Select demo").first
    tick.hover()
    page.mouse.down()
    page.wait_for_timeout(2500)  # ticks of the live list go by
    page.mouse.up()
    expect(tick).to_be_checked()
    assert "Traceback" not in (server.home.root / "server.log").read_text()
    page.context.close()


def test_pauses_and_resumes_leave_nothing_behind_in_the_browser(server: Server, page: Page) -> None:
    with closing(Service.open(server.home)) as service:
        run_id = submit_a_long_run(service)
        try:
            _pause_and_resume(service, server, page, run_id)
        finally:  # it would train on without its server
            service.runs.discard(run_id)
            wait_for(page, lambda: service.runs.observe(run_id).state is State.STOPPED, 60)


def _pause_and_resume(service: Service, server: Server, page: Page, run_id: str) -> None:
    refused: list[str] = []
    page.on("response", lambda answer: answer.status >= 400 and refused.append(answer.url))
    page.goto(f"{server.url}/run?run={run_id}")
    expect(page.locator(".u-board-root .u-chart svg").first).to_be_visible()
    tools = page.context.new_cdp_session(page)
    for _ in range(4):
        for verb, state in (("Pause", State.PAUSED), ("Resume", State.RUNNING)):
            page.locator(".st-key-run-actions").get_by_role("button", name=verb).click()
            wait_for(page, lambda state=state: service.runs.observe(run_id).state is state, 60)
    expect(page.locator(".st-key-run-actions").get_by_role("button", name="Pause")).to_be_visible()

    def boards() -> int:
        """Boards of charts that are not released: each listens to the document.

        The nodes of `Memory.getDOMCounters` vary by more than a board has.
        """
        document = tools.send("Runtime.evaluate", {"expression": "document"})["result"]["objectId"]
        found = tools.send("DOMDebugger.getEventListeners", {"objectId": document})["listeners"]
        return [listener["type"] for listener in found].count("visibilitychange")

    wait_for(page, lambda: boards() == 1, 30)  # none, while the page is drawn anew
    assert refused == []
