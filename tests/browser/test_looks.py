"""No page is cut, overlapping, wider than its window, restless, or too small to tap: much on it, long names."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.browser import gallery
from tests.browser.conftest import Server
from tests.browser.gallery import PHONE, SHOTS

pytestmark = [pytest.mark.browser, pytest.mark.timeout(500)]
CROWDED = ("now", "queue", "build-crowd", "run-many")
"""Pages with 14 sub-models and long names, which are looked at each time."""
REST = tuple(name for name in SHOTS if name not in CROWDED)
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


@pytest.fixture(scope="module")
def crowded() -> Iterator[Server]:
    with gallery.house(ended=30, forked=True) as server:
        yield server


def faults(browser: Browser, server: Server, width: int, scheme: str, names: tuple[str, ...]) -> list[str]:
    page, found = gallery.window(browser, width, scheme), []
    for name in names:
        gallery.show(page, server, SHOTS[name])
        more = gallery.shifts(page) if SHOTS[name].lives and width != PHONE else []
        found += [f"{name} {width}: {fault}" for fault in (*gallery.faults(page, phone=width == PHONE), *more)]
    page.context.close()
    return found


@pytest.mark.slow
def test_pages_with_much_on_them_look_right(crowded: Server, browser: Browser) -> None:
    assert faults(browser, crowded, 1280, "light", CROWDED) == []
    assert faults(browser, crowded, PHONE, "dark", CROWDED) == []


@pytest.mark.long
@pytest.mark.parametrize("width", gallery.HEIGHTS)
def test_every_page_and_dialog_looks_right(width: int, crowded: Server, browser: Browser) -> None:
    assert faults(browser, crowded, width, "dark" if width == 1440 else "light", (*CROWDED, *REST)) == []


def test_what_looks_wrong_is_found(browser: Browser) -> None:
    page = gallery.window(browser, PHONE, "light")
    page.set_content(SOUND)
    assert gallery.faults(page, phone=True) == []
    page.evaluate(gallery.SHIFTS)
    page.evaluate(BROKEN)
    found = gallery.faults(page, phone=True)
    assert [what for what in FOUND if not any(what in fault for fault in found)] == []
    page.evaluate("document.querySelector('[data-testid=stMain]').scrollTop = 1500")
    page.evaluate("document.querySelector('[data-testid=stMain]').style.paddingTop = '40px'")
    page.wait_for_function("window.shifts.length > 0")
    page.context.close()
