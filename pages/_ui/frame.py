"""The frame of every page. A page begins with one `page` call and works without app.py."""

import threading
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast

import streamlit as st
from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.routing import Route
from streamlit.file_util import get_static_dir
from streamlit.navigation.page import Page
from streamlit.runtime.scriptrunner import get_script_run_ctx

from pages._ui import charts, device_card, signed_in
from unifiednn_core.service.facade import Service
from unifiednn_core.views import markup, wording
from unifiednn_core.views.estimates import Estimate
from unifiednn_core.views.forecast import Counterfactual

HERE = Path(__file__).parent
STYLE = HERE / "style.css"
PARTS = charts.REPORT / "parts.css"
ICON = HERE / "icon.svg"
WORDMARK = HERE / "wordmark.svg"
LIVE_PERIOD_S, IDLE_PERIOD_S = 1.0, 5.0
RECENT_S = 0.8
"""Age of what all who watch may share."""
PATIENCE_S = 0.5
"""A slow update delays those of others by no more than this."""
_TURN = threading.RLock()
"""Updates at once would share one core anyway, and a click would wait for all of them."""
SIDEBAR_PX = 200
_ROUTED = "routed"
SCREENS = {
    "Now": "sensors",
    "Queue": "dns",
    "Submit": "send",
    "Build": "account_tree",
    "Run": "monitoring",
    "Compare": "balance",
    "Library": "inventory_2",
    "People": "group",
}
"""Titles of the pages with their Material symbols."""
NAMES = {"People": "Admin"}
"""What the sidebar calls a page, if that is not its title."""
SERVER = '<script>window.__streamlit = {BACKEND_BASE_URL: new URL(".", location.href).href}</script>'
OFFLINE = "No connection to the server. Training goes on. Trying again…"
NO_PAGE = "There is no page “{name}” here. It may have been renamed, or the address is not complete."
NO_SUPERVISOR = "The supervisor is not running, so no queued run can start. Restart the dashboard."
Option = TypeVar("Option")


def service() -> Service:
    """The service for the viewer of this page."""
    return signed_in.service()


def page(title: str) -> None:
    """Set up a page: browser title, style sheet, access, and banners if nothing can be saved or no run can start."""
    tab(f"{NAMES.get(title, title)} · UnifiedNN")
    st.logo(WORDMARK, size="large")
    _ensure_routed()
    st.html(STYLE)
    st.html(PARTS)
    st.html(f'<div class="u-offline" role="status">{markup.icon("cloud_off")}{markup.text(OFFLINE)}</div>')
    signed_in.require(title)
    _devices()
    for part in service().health().parts:
        if part.name == "store" and not part.ok:
            st.html(markup.notice("red", "error", "Nothing can be saved", part.text, part.remedy))
    if not service().supervisor_alive:
        service().start_supervisor()
    if not service().supervisor_alive:
        st.html(markup.notice("red", "error", "No run can start", NO_SUPERVISOR))


def _devices() -> None:
    """Draw the devices in the sidebar, renewed every five seconds."""
    if signed_in.may("cards"):
        with st.sidebar, st.container(key="devices-small"):
            live(_small_devices, False, idle_s=IDLE_PERIOD_S)


def _small_devices(_live: bool) -> None:
    device_card.draw_small(service().devices.cards(within_s=RECENT_S))


def tab(title: str, icon: str | Path = ICON) -> None:
    """Set title and icon (a path, or SVG) of the browser's tab, also while a part of the page is updated."""
    # With the width each time: without it the sidebar would go back to Streamlit's own.
    st.set_page_config(page_title=title, page_icon=icon, layout="wide", initial_sidebar_state=SIDEBAR_PX)


def live(
    draw: Callable[[bool], bool | None], lives: bool, *, every_s: float = LIVE_PERIOD_S, idle_s: float | None = None
) -> None:
    """Draw the part of a page that moves: every `every_s` while `lives`, every `idle_s` otherwise, if given.

    `draw` gets `lives` and may return what it is now; the page is drawn anew when it changed.
    """
    st.fragment(run_every=every_s if lives else idle_s)(_in_turn(draw))(lives)


def _in_turn(draw: Callable[[bool], bool | None]) -> Callable[[bool], None]:
    """The same function; its updates wait for those of other viewers, a page that somebody opens or clicks does not."""

    @wraps(draw)
    def drawn(lives: bool) -> None:
        context = get_script_run_ctx()
        updates = context is not None and bool(context.fragment_ids_this_run)
        mine = updates and _TURN.acquire(timeout=PATIENCE_S)
        try:
            now = draw(lives)
        finally:
            if mine:
                _TURN.release()
        if now is not None and now != lives:
            st.rerun()  # with the other period; not before the buttons are drawn, or a click would be lost

    return drawn


def segments(
    label: str, options: Sequence[Option], chosen: Option, key: str, title: Callable[[Any], str] = str, **more: Any
) -> Option:
    """Draw a choice of exactly one among few options, and return it; `title` makes the text of an option."""
    picked = st.segmented_control(label, options, default=chosen, required=True, key=key, format_func=title, **more)
    return chosen if picked is None else cast("Option", picked)


def now_s() -> float:
    """Now (UTC seconds), by the clock that stored moments are of."""
    return service().clock.utc_s()


def clock(at_s: float | None = None) -> str:
    """Moment (UTC seconds; now without one) as `hh:mm:ss` in the viewer's time zone."""
    return wording.moment_text(now_s() if at_s is None else at_s, st.context.timezone, "%H:%M:%S")


def moment(at_s: float) -> str:
    """Moment (UTC seconds) as `22 Nov 05:42` in the viewer's time zone."""
    return wording.moment_text(at_s, st.context.timezone, "%-d %b %H:%M")


def clock_at(estimate: Estimate) -> str:
    """The likely moment of an estimate on the viewer's clock: "14:32"."""
    here_s = now_s()
    return wording.clock_text(here_s + estimate.likely_s, here_s, st.context.timezone)


def estimate(starts: Estimate | None, ends: Estimate | None) -> str:
    """When something starts and ends, in words with the viewer's clock; empty if nothing is known."""
    return wording.estimate_text(starts, ends, now_s(), st.context.timezone)


def change(asked: Counterfactual) -> str:
    """What a change does to finish times, on the viewer's clock; empty if all stay."""
    return wording.change_text(asked.before, asked.after, now_s(), st.context.timezone)


def ago(at_s: float | None, *, seconds: bool = False) -> str:
    """Moment (UTC seconds) as `12 min ago` (with `seconds` also `12 s ago`), or as a date in the viewer's time zone."""
    return wording.ago_text(at_s, now_s(), st.context.timezone, seconds=seconds)


def route() -> None:
    """Run the page of the address."""
    st.session_state[_ROUTED] = True
    tab("UnifiedNN")  # before the navigation, which opens the sidebar at this width
    pages = _pages()
    unknown = _unknown(pages)
    found = _navigation(pages)
    if unknown:
        _no_page(unknown)
    else:
        found.run()


def _ensure_routed() -> None:
    """Run the page once more, through the router, if Streamlit ran it without.

    Streamlit discovers the folder pages/ and, until the first visit to app.py, runs the page of an address alone
    (streamlit/streamlit#10255).
    Declaring the pages ends that for the whole server. Once per session: a test that runs a page alone keeps its click.
    """
    if not st.session_state.get(_ROUTED):
        st.session_state[_ROUTED] = True
        _navigation(_pages())
        st.rerun()


def _first() -> str:
    """Title of the page that opens by itself."""
    person = signed_in.actor()
    return "Submit" if person is not None and person.sees_only_own else "Now"


def routes() -> list[Route]:
    """Streamlit's document at the addresses of the pages. It says where the server is.

    The browser would look for it below each page first (streamlit/streamlit#7074), which costs two answers 404 and a
    tenth of a second.
    """
    text = Path(get_static_dir(), "index.html").read_text(encoding="utf-8").replace("<head>", f"<head>{SERVER}", 1)

    async def document(_: Request) -> HTMLResponse:
        return HTMLResponse(text, headers={"Cache-Control": "no-cache"})

    return [Route(f"/{title.lower()}", document, methods=["GET"]) for title in SCREENS]


def _pages() -> list[Page]:
    person, first = signed_in.actor(), _first()
    return [
        st.Page(
            f"pages/{title.lower()}.py",
            # Icons are part of the titles: the browser would fetch separate icons from the internet.
            title=f":material/{icon}: {NAMES.get(title, title)}",
            url_path=title.lower(),
            default=title == first,
            visibility="visible" if person is None or signed_in.may_see(person, title) else "hidden",
        )
        for title, icon in sorted(SCREENS.items(), key=lambda screen: screen[0] != first)
    ]


def _navigation(pages: list[Page]) -> Page:
    signed_out = signed_in.login_configured() and signed_in.actor() is None
    return st.navigation(pages, position="hidden" if signed_out else "sidebar")


def _unknown(pages: Sequence[Page]) -> str:
    """Name in the address if no page has it; empty otherwise.

    Streamlit would say so in a dialog, also for the first page, which it serves at `/` alone: it is asked for no name.
    """
    context = get_script_run_ctx()
    asked = "" if context is None else context.pages_manager.intended_page_name or ""
    if context is None or not asked or asked in {page.url_path for page in pages}:
        return ""
    context.pages_manager.set_script_intent("", "")
    return "" if asked == _first().lower() else asked


def _no_page(asked: str) -> None:
    page("Page not found")
    st.html(markup.empty("Page not found", NO_PAGE.format(name=asked)))
    with st.container(horizontal=True, horizontal_alignment="center"):
        if st.button("Go to the first page", key="first-page", type="primary", icon=":material/home:"):
            st.rerun()
