"""Takes a picture of every page of a server full of runs: `python -m tests.browser.gallery FOLDER [--page NAME]...`.

Three widths, light and dark; each picture is also checked for what needs no eye.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.browser import crowd
from tests.browser.conftest import ARGUMENTS, CHROMIUM, Server
from tests.ports import free_port
from unifiednn_core.base.paths import Home

CHECKS = (Path(__file__).parent / "looks.js").read_text(encoding="utf-8")
HEIGHTS = {1440: 900, 1280: 800, 390: 844}
"""By width of a window."""
MOST_HEIGHT = 6000
SCHEMES = ("light", "dark")
PHONE = 390
BOARD = ".u-board h3"
SHIFTS = """() => {
  window.shifts = [];
  new PerformanceObserver(list => list.getEntries().forEach(entry => window.shifts.push(...entry.sources.map(source => {
    const node = source.node?.nodeType === 1 ? source.node : source.node?.parentElement;
    return `${node?.closest('[class*="st-key-"]')?.className.match(/st-key-\\S+/)} ${node?.className} `
      + `${JSON.stringify(source.previousRect)} ${JSON.stringify(source.currentRect)}`;
  })))).observe({type: 'layout-shift'});
}"""
STILL = """() => {
  const main = document.querySelector('[data-testid=stMainBlockContainer]'), now = performance.now();
  const height = main && !main.querySelector('[data-testid=stSkeleton], .u-busy') ? main.scrollHeight : -1;
  const seen = window.lastSeen?.height === height ? window.lastSeen : (window.lastSeen = {height, since: now});
  return height > 0 && now - seen.since > 900;
}"""
"""Whether the page has had one height for a while."""
Act = Callable[[Page], None]


@dataclass(frozen=True)
class Shot:
    """A page, and what is done there before its picture."""

    path: str
    act: Act | None = None
    lives: bool = False
    """Whether it is drawn anew every second."""
    shows: str = "h1"
    """What is there when it is drawn."""


def pressing(*names: str, opens: str = "dialog") -> Act:
    """Press buttons one after the other, each in what the one before opened."""

    def press(page: Page) -> None:
        for name in names:
            page.get_by_role("button", name=name, exact=False).first.click()
        expect(page.get_by_role(opens).first).to_be_visible(timeout=30_000)  # type: ignore[arg-type]

    return press


def showing(tab: str) -> Act:
    """Open a tab."""

    def show(page: Page) -> None:
        page.get_by_role("tab", name=tab).or_(page.get_by_role("radio", name=tab)).first.click()

    return show


SHOTS: dict[str, Shot] = {
    "now": Shot("", lives=True),
    "queue": Shot("queue", lives=True),
    "submit": Shot("submit"),
    "build": Shot("build"),
    "build-trio": Shot("build?draft=trio"),
    "build-crowd": Shot("build?draft=crowd"),
    "runs": Shot("run"),
    "run": Shot(f"run?run={crowd.LIVE}", lives=True, shows=BOARD),
    "run-many": Shot(f"run?run={crowd.MANY}", lives=True, shows=BOARD),
    "run-ended": Shot(f"run?run={crowd.DONE}", shows=BOARD),
    "run-failed": Shot(f"run?run={crowd.FAILED}"),
    "adjust": Shot(f"run?run={crowd.MANY}", pressing("Adjust")),
    "stop": Shot(f"run?run={crowd.LIVE}", pressing("Stop")),
    "values": Shot(f"run?run={crowd.LIVE}", pressing("Values: Loss")),
    "compare": Shot("compare"),
    "comparison": Shot(f"compare?run={crowd.HYBRID}", shows=BOARD),
    "side-by-side": Shot(f"compare?runs={crowd.DONE},{crowd.HYBRID}", shows=BOARD),
    "library": Shot("library"),
    "library-data": Shot("library", showing("Data")),
    "people": Shot("people"),
}


@contextmanager
def house(ended: int = 300, *, forked: bool = False) -> Iterator[Server]:
    """A crowded home, served."""
    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder)).create()
        worker = subprocess.Popen(["sleep", "86400"])
        with pytest.MonkeyPatch.context() as monkeypatch:
            crowd.seed(home, monkeypatch, worker.pid, ended)
        server = Server(home, free_port(), forked=forked)
        server.start()
        try:
            yield server
        finally:
            server.kill()
            worker.kill()
            worker.wait()


def window(browser: Browser, width: int, scheme: str) -> Page:
    """A window of a width, of a browser of its own."""
    viewport = {"width": width, "height": HEIGHTS[width]}
    return browser.new_context(viewport=viewport, color_scheme=scheme).new_page()  # type: ignore[arg-type]


def show(page: Page, server: Server, shot: Shot) -> None:
    """Go to a page of the house, and do there what its picture needs."""
    page.goto(f"{server.url}/{shot.path}")
    expect(page.locator(shot.shows).first).to_be_visible(timeout=60_000)
    settled(page)
    if shot.act is not None:
        shot.act(page)
        settled(page)


def settled(page: Page) -> None:
    """Wait until all that the page draws at first is there."""
    page.wait_for_function(STILL, timeout=60_000)


def grow(page: Page) -> None:
    """Make the window as tall as the page, so that all of it is in view."""
    size = page.viewport_size
    assert size is not None
    for _ in range(3):  # charts are drawn when they come into view
        height = page.evaluate("document.querySelector('[data-testid=stMainBlockContainer]')?.scrollHeight ?? 0")
        wanted = min(max(int(height) + 20, HEIGHTS[size["width"]]), MOST_HEIGHT)
        if page.viewport_size == {**size, "height": wanted}:
            return
        page.set_viewport_size({"width": size["width"], "height": wanted})
        page.wait_for_timeout(600)


def faults(page: Page, *, phone: bool) -> list[str]:
    """What is wrong with the page in view, one line each."""
    found: list[str] = page.evaluate(CHECKS, phone)
    return found


def shifts(page: Page, ticks_s: float = 3.3) -> list[str]:
    """What moves by itself within some ticks."""
    page.evaluate(SHIFTS)
    page.wait_for_timeout(1000 * ticks_s)
    found: list[str] = page.evaluate("window.shifts")
    return [f"moves by itself: {one}" for one in found]


def taken(page: Page, server: Server, name: str, folder: Path, schemes: Sequence[str]) -> list[str]:
    """Take the pictures of a page in a window; returns what is wrong with it."""
    size = page.viewport_size
    assert size is not None
    width = size["width"]
    page.set_viewport_size({"width": width, "height": HEIGHTS[width]})
    show(page, server, SHOTS[name])
    for scheme in schemes:
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        page.wait_for_timeout(1200)  # charts are drawn one a frame
        grow(page)
        page.screenshot(path=folder / f"{name}-{width}-{scheme}.png")
    found = faults(page, phone=width == PHONE)
    return found + shifts(page) if SHOTS[name].lives else found


def main(folder: Path, names: Sequence[str], widths: Sequence[int], schemes: Sequence[str]) -> int:
    """Take the pictures, print what is wrong, and return how much it is."""
    folder.mkdir(parents=True, exist_ok=True)
    count = 0
    with house() as server, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        for width in widths:
            page = window(browser, width, schemes[0])
            for name in names or SHOTS:
                found = taken(page, server, name, folder, schemes)
                sys.stdout.writelines(f"{name} {width}: {fault}\n" for fault in found)
                sys.stdout.flush()
                count += len(found)
            page.context.close()
        browser.close()
    return count


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--page", action="append", choices=list(SHOTS), default=[])
    parser.add_argument("--width", action="append", type=int, choices=list(HEIGHTS), default=[])
    parser.add_argument("--scheme", action="append", choices=SCHEMES, default=[])
    given = parser.parse_args()
    sys.exit(1 if main(given.folder, given.page, given.width or list(HEIGHTS), given.scheme or SCHEMES) else 0)
