"""No page is cut, overlapping, wider than its window, restless, too small to tap, or at fault for axe-core."""

import time
from dataclasses import replace
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import Server
from tests.browser.reel import settled
from tests.hostile.test_names import data_set
from tests.ui import fake_arms, fake_views
from tests.ui.fake_views import demo_spec, ended, failed, mid_flight, queued, run, submodel
from tests.ui.seed import Seeded
from unifiednn_core.base.paths import Home
from unifiednn_core.service.roles import Role
from unifiednn_core.spec.lifecycle import State
from unifiednn_core.views.runs import RunView

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]
CHECKS = (Path(__file__).parent / "looks.js").read_text(encoding="utf-8")
HEIGHTS = {1280: 800, 390: 844}
"""By width of a window."""
PHONE = 390
LONG = "a-residual-network-with-a-name-of-sixty-four-characters-as-usual"
CROWD = tuple(f"{LONG[:61]}-{at:02}" if at % 3 else f"net_{at}" for at in range(14))
FRESH = {"heartbeat_age_s": -6000.0, "created_at_s": time.time() - 100}
"""A beat in the future stays fresh, however long the pages take."""
BOARD = ".u-board h3"
PAGES = {
    "": "h1",
    "queue": "h1",
    "submit": "h1",
    "build?draft=crowd": "h1",
    "run": "h1",
    "run?run=r-many": BOARD,
    "run?run=r-live": BOARD,
    "run?run=r-failed": "h1",
    "compare": "h1",
    "compare?run=r-hybrid": BOARD,
    "compare?runs=r-done,r-hybrid": BOARD,
    "library": "h1",
    "people": "h1",
}
"""Addresses, and what is there once they are drawn."""
LIVE = ("", "queue", "run?run=r-many", "run?run=r-live")
"""Drawn anew every second."""
SHIFTS = """() => {
  window.shifts = [];
  new PerformanceObserver(list => list.getEntries().forEach(entry => window.shifts.push(...entry.sources.map(source => {
    const node = source.node?.nodeType === 1 ? source.node : source.node?.parentElement;
    return `${node?.closest('[class*="st-key-"]')?.className.match(/st-key-\\S+/)} ${node?.className} `
      + `${JSON.stringify(source.previousRect)} ${JSON.stringify(source.currentRect)}`;
  })))).observe({type: 'layout-shift'});
}"""
SOUND = """<div style="height:844px;overflow:hidden"><div data-testid="stMain" style="height:844px;overflow:auto">
<p style="height:1500px">text</p></div></div>"""
BROKEN = """() => {
  const spoil = (html) => document.querySelector('[data-testid=stMain]').insertAdjacentHTML('beforeend', html);
  spoil('<div style="width:3000px">wide</div>');
  spoil('<div style="height:20px"><p style="height:0;margin:0">one text</p><p style="margin:0">another text</p></div>');
  spoil('<div style="width:40px;overflow:hidden;white-space:nowrap">cut in the middle of it</div>');
  spoil('<div style="width:40px;overflow:hidden;white-space:nowrap;text-overflow:ellipsis">without any title</div>');
  spoil('<button style="display:block;width:20px;height:20px">x</button>');
}"""
FOUND = ("wider than the page", "text over text", "cut: ", "cut without a title", "small target, 20 by 20")


def many() -> RunView:
    """14 sub-models in each of their states, with long names."""
    states = [State.RUNNING, State.QUEUED, State.COMPLETED, State.FAILED, State.STOPPED, State.PAUSED]
    states += [State.QUEUED] * (len(CROWD) - len(states))
    parts = [submodel(at, name, 2.4 + at / 4, states[at], holds_device=at == 0) for at, name in enumerate(CROWD)]
    parts[2] = replace(parts[2], certificate=fake_arms.certificate(CROWD[2], holds=True))
    parts[3] = replace(parts[3], cause="The loss is nan at step 46.", remedy="Retry it with a smaller learning rate.")
    told = f"{CROWD[0]} has been in line longest; one epoch each."
    breakdown = fake_arms.breakdown(CROWD)
    return run("r-many", State.RUNNING, tuple(parts), name=LONG, now_reason=told, breakdown=breakdown, **FRESH)


@pytest.fixture
def home(home: Home, monkeypatch: pytest.MonkeyPatch) -> Home:
    """Full of runs, files and people with long names."""
    seeded, waits = Seeded(home, monkeypatch), replace(queued(), device="cuda:7")
    seeded.listed = [
        many(),
        replace(mid_flight(), breakdown=fake_arms.breakdown(), **FRESH),
        replace(waits, name=LONG),
        replace(waits, run_id="r-next", name="second"),
        *(replace(ended(), run_id=f"r-old-{at}", name=f"{LONG} {at}"[-60:]) for at in range(30)),
        *(ended(), failed(), fake_arms.hybrid(), fake_arms.baseline("concurrent"), fake_arms.baseline("sequential")),
    ]
    first = fake_views.library()[0]
    long = replace(first, sha256=fake_views.sha("long"), filename=f"{LONG}.pt2")
    seeded.held = [*fake_views.library(), long, replace(data_set("of everything"), filename=f"{LONG}.csv")]
    document = demo_spec().model_dump(mode="json", exclude_none=True)
    parts = [document["submodels"][0] | {"name": name} for name in CROWD]
    seeded.drafts["crowd"] = document | {"name": LONG, "submodels": parts}
    seeded.people.give_role(f"{LONG}@example.org", Role.SUBMITTER)
    seeded.people.create_token(f"{LONG}@example.org", Role.SUBMITTER, 30)
    seeded.close()
    return home


def window(browser: Browser, width: int, scheme: str) -> Page:
    """A window of a width, of a browser of its own."""
    viewport = {"width": width, "height": HEIGHTS[width]}
    return browser.new_context(viewport=viewport, color_scheme=scheme).new_page()  # type: ignore[arg-type]


def faults(page: Page) -> list[str]:
    """What is wrong with the page in view, one line each."""
    found: list[str] = page.evaluate(CHECKS, page.viewport_size == {"width": PHONE, "height": HEIGHTS[PHONE]})
    serious = (one for one in Axe().run(page).response["violations"] if one["impact"] in ("serious", "critical"))
    return found + [f"{one['id']} {[node['html'][:160] for node in one['nodes'][:3]]}" for one in serious]


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), [(1280, "dark"), (PHONE, "light")])
def test_pages_with_much_on_them_look_right(width: int, scheme: str, server: Server, browser: Browser) -> None:
    page, found = window(browser, width, scheme), []
    for path, shows in PAGES.items():
        page.goto(f"{server.url}/{path}")
        expect(page.locator(shows).first).to_be_visible(timeout=60_000)
        settled(page)
        found += [f"{path}: {fault}" for fault in faults(page)]
        if path in LIVE and width != PHONE:
            page.evaluate(SHIFTS)
            page.wait_for_timeout(3300)
            found += [f"{path}: moves by itself: {one}" for one in page.evaluate("window.shifts")]
    page.context.close()
    assert found == []


def test_what_looks_wrong_is_found(browser: Browser) -> None:
    page = window(browser, PHONE, "light")
    page.set_content(SOUND)
    assert page.evaluate(CHECKS, True) == []
    page.evaluate(SHIFTS)
    page.evaluate(BROKEN)
    found = page.evaluate(CHECKS, True)
    assert [what for what in FOUND if not any(what in fault for fault in found)] == []
    page.evaluate("document.querySelector('[data-testid=stMain]').scrollTop = 1500")
    page.evaluate("document.querySelector('[data-testid=stMain]').style.paddingTop = '40px'")
    page.wait_for_function("window.shifts.length > 0")
    page.context.close()
