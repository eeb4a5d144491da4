"""The line for devices, one row for each entry: why it waits, when it starts, and buttons that move its run."""

from collections.abc import Mapping, Sequence
from functools import partial

import streamlit as st

from pages._ui import actions, arms, frame, hybrid_card, signed_in
from unifiednn_core.base.texts import tr
from unifiednn_core.spec.run import ALL_BASELINES
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
    return tr("{mode} baseline", mode=tr(entry.mode)) if entry.mode in ALL_BASELINES else ""


def _name(entry: LineEntry) -> str:
    """Name of the run for its buttons, with the kind of a baseline."""
    return f"{entry.name} {_kind(entry)}".rstrip()


def _moves(entry: LineEntry, last: int, key: str) -> None:
    name, place = wording.plain(_name(entry)), entry.place
    for to, icon, label in (
        (1, "vertical_align_top", tr("Run {name} next", name=name)),
        (place - 1, "arrow_upward", tr("Move {name} up", name=name)),
        (place + 1, "arrow_downward", tr("Move {name} down", name=name)),
    ):
        off = not 1 <= to <= last or to == place
        if actions.icon_button(label, icon, f"{key}-{icon}-{entry.run_id}", disabled=off):
            _move(entry.run_id, to)
    with st.popover(tr("Place of {name}", name=name), icon=":material/swap_vert:", type="tertiary"):
        to = st.number_input(tr("Place in the queue"), 1, last, place, key=f"{key}-place-{entry.run_id}-{place}")
        if st.button(tr("Move"), key=f"{key}-move-{entry.run_id}", type="primary"):
            _move(entry.run_id, int(to))


def _move(run_id: str, place: int) -> None:
    actions.attempt(partial(frame.service().queue.move, run_id, place))
    st.rerun()


def _cells(entry: LineEntry) -> str:
    parts = "" if entry.submodels == (entry.name,) else ", ".join(entry.submodels)
    shown = f'<span class="u-clip u-block" title="{markup.text(parts)}">{markup.text(parts)}</span>' if parts else ""
    owner = f"<span class='u-under'>{markup.text(entry.owner or tr('local operator'))}</span>"
    reason = tr("waits for {what}", what=entry.waits_for) if entry.waits_for else tr("starts in a moment")
    when = frame.estimate(entry.starts_in_s, entry.ends_in_s) or tr(wording.NO_ESTIMATE)
    asked = markup.faint(wording.device_text(entry.asked))
    return markup.cells("u-brief u-line-entry", (f"{shown}{owner}", markup.text(reason), markup.faint(when), asked))


def holders(hybrids: Sequence[ListedHybrid]) -> str:
    """Who holds each device and until when, one line each, as HTML."""
    return "".join(
        markup.quiet("memory", attention.holder_text(hybrid, None if ends is None else frame.clock_at(ends)))
        for hybrid in hybrids
        for ends in [attention.ends_of(hybrid)]
    )
