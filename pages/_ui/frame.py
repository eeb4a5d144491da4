"""The frame of every screen. A page begins with one `page` call and needs nothing of app.py."""

import time
from typing import TYPE_CHECKING

import streamlit as st

from pages._ui import live_chart, markup, screens, signed_in, wording

if TYPE_CHECKING:
    from unifiednn_core.service import Service

STYLE = live_chart.ROOT / "pages" / "_ui" / "style.css"
PARTS = live_chart.ROOT / "unifiednn_core" / "report" / "parts.css"
ICON = live_chart.ROOT / "pages" / "_ui" / "icon.svg"
WORDMARK = live_chart.ROOT / "pages" / "_ui" / "wordmark.svg"


def service() -> "Service":
    """The service as whoever looks at this page may use it."""
    return signed_in.service()


def page(title: str) -> None:
    """Set the page up: browser title, style sheet, who may see it, and a banner when no run could start."""
    st.set_page_config(page_title=f"{title} · UnifiedNN", page_icon=ICON, layout="wide")
    st.logo(WORDMARK, size="large")
    screens.ensure_routed()
    st.html(STYLE)
    st.html(PARTS)
    signed_in.require(title)
    if not service().supervisor_alive:
        service().start_supervisor()
    if not service().supervisor_alive:
        st.html(markup.notice("red", "error", "No run can start", wording.NO_SUPERVISOR))


def clock(at_s: float | None = None) -> str:
    """Moment (UTC seconds; now without one) as `hh:mm:ss` in the viewer's time zone."""
    return wording.clock_text(time.time() if at_s is None else at_s, st.context.timezone)


def ago(at_s: float | None) -> str:
    """Moment (UTC seconds) as `12 min ago`, or as a date in the viewer's time zone."""
    return wording.ago_text(at_s, time.time(), st.context.timezone)


def age(at_s: float | None) -> str:
    """Moment (UTC seconds) as `12 s ago`, for what changes by the second."""
    return wording.age_text(at_s, time.time(), st.context.timezone)
