"""Events and logs of a run, with one row of filters each."""

from collections.abc import Callable, Sequence

import streamlit as st

from pages._ui import actions, frame, signed_in
from unifiednn_core.views import logs, markup, wording
from unifiednn_core.views.runs import RunView

SHOWN_EVENTS, SHOWN_LINES = 200, 400
HEIGHT_PX, MOST_WITHOUT_SCROLLING = 420, 14
TITLES: dict[logs.Level, str] = {"info": "All", "warning": "Warnings and errors", "error": "Errors"}
COLOURS: dict[logs.Level, str] = {"info": "", "warning": "u-warn", "error": "u-error"}


def events(view: RunView) -> None:
    """Draw the events that the filter leaves, newest first."""
    known = logs.event_lines(view.events)
    found = _filtered(view, known, "events")[::-1]
    table = (
        {"Time": frame.clock(line.at_s), "Who": line.who, "Event": line.title} | {"Message": (line.level, line.text)}
        for line in found[:SHOWN_EVENTS]
    )
    looks: markup.Looks = {
        "Time": markup.faint,
        "Who": lambda who: _who(who),
        "Event": lambda title: markup.text(wording.title(title)),
        "Message": lambda told: _told(*told),
    }
    st.html(f'<div class="u-log">{markup.table(f"Newest first, at most {SHOWN_EVENTS}", table, looks)}</div>')


def worker(view: RunView) -> None:
    """Draw what the workers wrote, with a copy button and a download."""
    if not signed_in.may("worker_log"):
        st.html(markup.small("Ask an operator: logs are for people who submit."))
        return
    log = frame.service().logs.worker_log(view.run_id)
    if log.withheld:
        st.html(markup.quiet("lock", log.withheld))
        _download(view)
        return
    found = _filtered(view, log.lines, "worker", beside=lambda: _download(view))
    if not log.lines:
        st.html(markup.small("The worker wrote nothing so far; warnings and errors would be here."))
        return
    if log.is_cut or len(found) > SHOWN_LINES:
        st.html(markup.small("The newest lines; older ones are in the file on the server."))
    scrolls = len(found) > MOST_WITHOUT_SCROLLING
    with st.container(height=HEIGHT_PX if scrolls else "content", key="worker-log", autoscroll=scrolls):
        st.code("\n".join(line.text for line in found[-SHOWN_LINES:]), language=None, wrap_lines=True)


def _filtered(
    view: RunView, lines: Sequence[logs.LogLine], key: str, beside: Callable[[], None] = lambda: None
) -> tuple[logs.LogLine, ...]:
    """Draw the filters of some lines and return what they leave."""
    with st.container(horizontal=True, vertical_alignment="bottom", key=f"filter-{key}"):
        words = st.text_input("Text", key=f"{key}-words", placeholder="any", width=220)
        names = ["", *(part.name for part in view.submodels)]
        who = st.selectbox(
            "Sub-model", names, key=f"{key}-who", width=220, format_func=lambda name: name or "all and the run"
        )
        least = st.selectbox(
            "Level", logs.LEVELS, key=f"{key}-level", width=200, format_func=lambda level: TITLES[level]
        )
        found = logs.chosen(lines, words or "", least, who or None)
        st.html(markup.small(f"{len(found)} of {len(lines)} lines"), width="content")
        beside()
    return found


def _download(view: RunView) -> None:
    address = actions.download_address("logs", f"{view.run_id}.txt")
    actions.download_link("Download events and log", address)


def _who(names: Sequence[str]) -> str:
    """Names of sub-models; one line for many."""
    if not names:
        return markup.faint("run")
    if len(names) == 1:
        return f'<span class="u-who" title="{markup.text(names[0])}">{markup.text(names[0])}</span>'
    count = wording.count_text(len(names), "sub-model")
    return f'<span title="{markup.text(", ".join(names))}">{markup.text(count)}</span>'


def _told(level: logs.Level, text: str) -> str:
    return f'<span class="{COLOURS[level]}">{markup.text(text)}</span>' if COLOURS[level] else markup.text(text)
