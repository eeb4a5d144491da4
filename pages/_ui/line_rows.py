"""The line for devices, one row for each entry: why it waits, when it starts, and buttons that move its run."""

from collections.abc import Mapping, Sequence
from functools import partial

import streamlit as st

from pages._ui import actions, arms, frame, hybrid_card, signed_in
from unifiednn_core.spec.run import BASELINES
from unifiednn_core.views import attention, markup, wording
from unifiednn_core.views.hybrids import LineEntry, ListedHybrid
from unifiednn_core.views.runs import RunView

PLACE_WIDTH_PX, MOVES_WIDTH_PX, STOP_WIDTH_PX = 24, 164, 44


def draw(line: Sequence[LineEntry], runs: Mapping[str, RunView], *, key: str) -> None:
    """Draw the rows; `runs` are those that the viewer may stop from here, by id."""
    moves = signed_in.may("move")
    ids = list(dict.fromkeys(entry.run_id for entry in line))
    places = {entry.run_id: entry.place for entry in line}
    last = max(places.values(), default=0)
    drawn: set[str] = set()
    with st.container(key=f"rows-{key}"):
        for entry in line:
            row = f"row-{key}-{entry.run_id}-{'-'.join(entry.submodels[:1])}"
            with st.container(horizontal=True, vertical_alignment="center", key=row):
                st.html(f"<b>{entry.place}</b>", width=PLACE_WIDTH_PX)
                hybrid_card.run_link(entry.name, entry.run_id, _kind(entry))
                st.html(_cells(entry))
                if entry.run_id in drawn:  # another network of the same run
                    continue
                drawn.add(entry.run_id)
                width = MOVES_WIDTH_PX * moves + STOP_WIDTH_PX * (entry.run_id in runs)
                if width:
                    with st.container(horizontal=True, key=f"icons-{key}-{entry.run_id}", width=width, wrap=False):
                        if moves and len(ids) > 1:
                            _moves(entry, last, key)
                        if entry.run_id in runs:
                            able = arms.fitting(runs[entry.run_id]).actions
                            actions.state_buttons(entry.run_id, _name(entry), able, look="icon")


def _kind(entry: LineEntry) -> str:
    """Kind of a baseline, which is named like its hybrid; empty for a hybrid."""
    return f"{entry.mode} baseline" if entry.mode in BASELINES else ""


def _name(entry: LineEntry) -> str:
    """Name of the run for its buttons, with the kind of a baseline."""
    return f"{entry.name} {_kind(entry)}".rstrip()


def _moves(entry: LineEntry, last: int, key: str) -> None:
    name, place = wording.plain(_name(entry)), entry.place
    for to, icon, label in (
        (1, "vertical_align_top", f"Run {name} next"),
        (place - 1, "arrow_upward", f"Move {name} up"),
        (place + 1, "arrow_downward", f"Move {name} down"),
    ):
        off = not 1 <= to <= last or to == place
        if actions.icon_button(label, icon, f"{key}-{icon}-{entry.run_id}", disabled=off):
            _move(entry.run_id, to)
    with st.popover(f"Place of {name}", icon=":material/swap_vert:", type="tertiary"):
        to = st.number_input("Place in the queue", 1, last, place, key=f"{key}-place-{entry.run_id}-{place}")
        if st.button("Move", key=f"{key}-move-{entry.run_id}", type="primary"):
            _move(entry.run_id, int(to))


def _move(run_id: str, place: int) -> None:
    actions.attempt(partial(frame.service().queue.move, run_id, place))
    st.rerun()


def _cells(entry: LineEntry) -> str:
    parts = "" if entry.submodels == (entry.name,) else ", ".join(entry.submodels)
    shown = f'<span class="u-clip u-block" title="{markup.text(parts)}">{markup.text(parts)}</span>' if parts else ""
    owner = f"<span class='u-under'>{markup.text(entry.owner or 'local operator')}</span>"
    reason = f"waits for {entry.waits_for}" if entry.waits_for else "starts in a moment"
    when = frame.estimate(entry.starts_in_s, entry.ends_in_s) or wording.NO_ESTIMATE
    asked = markup.faint(wording.device_text(entry.asked))
    return markup.cells("u-brief u-line-entry", (f"{shown}{owner}", markup.text(reason), markup.faint(when), asked))


def holders(hybrids: Sequence[ListedHybrid]) -> str:
    """Who holds each device and until when, one line each, as HTML."""
    return "".join(
        markup.quiet("memory", attention.holder_text(hybrid, None if ends is None else frame.clock_at(ends)))
        for hybrid in hybrids
        for ends in [attention.ends_of(hybrid)]
    )
