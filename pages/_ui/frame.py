"""The frame of every screen. A page begins with one `page` call and needs nothing of app.py."""

import gc
import time
from typing import TYPE_CHECKING

import streamlit as st

from pages._ui import live_chart, markup, screens, wording

if TYPE_CHECKING:
    from unifiednn_core.service import Service

STYLE = live_chart.ROOT / "pages" / "_ui" / "style.css"
PARTS = live_chart.ROOT / "unifiednn_core" / "report" / "parts.css"
ICON = live_chart.ROOT / "pages" / "_ui" / "icon.svg"


@st.cache_resource(show_spinner=False)
def service() -> "Service":
    """The one service of this process, with its supervisor started and the charts' library in place."""
    from unifiednn_core.service import Service

    opened = Service.open()
    opened.start_supervisor()
    live_chart.install_plotly()
    # Streamlit collects garbage after every run of a script; frozen imports are not walked through each time.
    gc.collect()
    gc.freeze()
    return opened


def page(title: str) -> None:
    """Set the page up: browser title, style sheet, and a banner when no run could start."""
    st.set_page_config(page_title=f"{title} · UnifiedNN", page_icon=ICON, layout="wide")
    screens.ensure_routed()
    st.html(STYLE)
    st.html(PARTS)
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
