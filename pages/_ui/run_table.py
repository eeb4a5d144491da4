"""The list of all runs: search, filters, sorting, pages, and what can be done with the ticked ones."""

from collections.abc import Sequence
from typing import cast

import streamlit as st

from pages._ui import actions, arms, frame, pager, rows, signed_in
from unifiednn_core.base.errors import NotFound, UnifiedNNError
from unifiednn_core.base.units import duration_text, memory_text
from unifiednn_core.spec.lifecycle import ENDED, Event, State
from unifiednn_core.spec.run_query import RunChoices, RunQuery, SortKey
from unifiednn_core.views import markup, wording
from unifiednn_core.views.run_lines import DeletionView, RunLine

KEY = "runs"
DELETING, SORT, ASKED, EVERYWHERE = "runs-deleting", "runs-sort", "runs-asked", "runs-everywhere"
DAY_S = 86_400
PERIODS = {"Any time": 0, "Last 24 hours": 1, "Last 7 days": 7, "Last 30 days": 30}
LEAST, MOST = 2, 6
"""Runs that a comparison takes."""
STAYS = "Files of the library stay, and so do trained models that were taken into it."
DESCENDING = frozenset({"submitted", "time", "accuracy", "memory"})
"""Columns that begin with the largest value."""


def draw(_live: bool) -> bool:
    """Draw the list; returns whether a run is active."""
    runs = frame.service().runs
    choices = runs.run_choices()
    lives = choices.living > 0
    actions.show_refusals()
    count = wording.count_text(choices.total, "run")
    st.html(markup.title("Runs", markup.note(f"{count} · data as of {frame.clock()}" if choices.total else "")))
    if not choices.total:
        actions.empty_page("No runs yet", wording.NO_RUNS, "demo-choose")
        return lives
    query = _query(choices)
    found = runs.listing(query)
    bar = st.container(horizontal=True, vertical_alignment="center", key="runs-bar")
    # A link says more than a number: how many match, of how many.
    caption = wording.count_text(found.total, "run") + ("" if found.total == choices.total else f" / {choices.total:,}")
    if found.searched is not None:
        _searched(found.searched, choices.total, query.text)
    if not found.lines:
        st.html(markup.empty("No run matches", "Change the search or the filters."))
        return lives
    answer = rows.draw(
        _columns(),
        [_line(line) for line in found.lines],
        caption=caption,
        key=KEY,
        sort=query.sort,
        descending=query.descending,
    )
    with bar:
        _bar(answer.ticked)
    pager.draw(found.page, found.total, query.rows, key=KEY)
    if answer.opened:
        actions.open_run(answer.opened)
    if answer.sorted:
        _sort_by(cast("SortKey", answer.sorted), query)
        st.rerun()
    return lives


def draw_deletion() -> None:
    """Draw the dialog that asks before runs are deleted, if it is open. Call it once, in the body of a page."""
    asked: tuple[str, ...] | None = st.session_state.get(DELETING)
    if asked:
        st.dialog(f"Delete {wording.count_text(len(asked), 'run')}?", on_dismiss=_close)(_deletion)(asked)


def ask_to_delete(run_ids: Sequence[str]) -> None:
    """Open that dialog, in the next run of the page."""
    st.session_state[DELETING] = tuple(run_ids)


def _query(choices: RunChoices) -> RunQuery:
    """Draw search and filters; returns what they ask."""
    with st.container(horizontal=True, vertical_alignment="bottom", key="runs-filters"):
        text = st.text_input("Search", key="runs-text", placeholder="run, sub-model, owner", width=200)
        states = st.multiselect(
            "State",
            list(State),
            key="runs-states",
            format_func=lambda state: wording.STATES[state].label,
            placeholder="all",
            width=190,
        )
        owner, device = None, ""
        if len(choices.owners) > 1:
            owner = st.selectbox(
                "Owner", choices.owners, None, _person, "runs-owner", placeholder="everybody", width=190
            )
        if len(choices.devices) > 1:
            picked = st.selectbox("Device", choices.devices, None, key="runs-device", placeholder="any", width=110)
            device = picked or ""
        period = st.selectbox("Submitted", list(PERIODS), key="runs-period", width=150)
    since_s = frame.now_s() - PERIODS[period] * DAY_S if PERIODS[period] else None
    asked = (text, tuple(states), owner, device, period)
    if st.session_state.get(ASKED, asked) != asked:
        pager.restart(KEY)
    st.session_state[ASKED] = asked
    sort, descending = st.session_state.get(SORT, ("submitted", True))
    text = text.strip()
    return RunQuery(
        text=text,
        everywhere=st.session_state.get(EVERYWHERE) == text,
        states=tuple(states),
        owner=owner,
        device=device,
        since_s=since_s,
        sort=sort,
        descending=descending,
        page=pager.page_of(KEY),
    )


def _searched(count: int, total: int, text: str) -> None:
    """Say in how many runs a text was looked for, with the button that looks for it in all."""
    with st.container(horizontal=True, vertical_alignment="center", key="runs-searched"):
        st.html(markup.small(f"Searched in the newest {count:,} runs."), width="content")
        if st.button(f"Search all {total:,}", key="runs-search-all", type="tertiary"):
            st.session_state[EVERYWHERE] = text
            st.rerun()


def _columns() -> list[rows.Column]:
    heads = {
        "name": "Run",
        "state": "State",
        "owner": "Owner",
        "parts": "Sub-models",
        "accuracy": "Test accuracy",
        "memory": "Peak memory",
        "verdict": "Verdict",
        "device": "Device",
        "time": "Time",
        "submitted": "Submitted",
    }
    plain, numbers = {"parts", "verdict"}, {"parts", "accuracy", "memory", "time"}
    return [rows.Column(name, label, name not in plain, name in numbers) for name, label in heads.items()]


def _line(line: RunLine) -> rows.TableLine:
    run = line.run
    elapsed = "-" if run.elapsed_s is None else duration_text(run.elapsed_s)
    if run.state is State.QUEUED and run.queue_position:
        elapsed = f"position {run.queue_position}"
    owners = ", ".join(map(_person, line.owners))
    way = arms.badge(run) or markup.faint(arms.way_text(run))
    return rows.TableLine(
        run.run_id,
        run.name,
        (
            markup.state_badge(run.state),
            f'<span class="u-clip" title="{markup.text(owners)}">{markup.text(owners)}</span>',
            f"{len(run.submodels):,}",
            wording.accuracy_text(line.test_accuracy),
            "-" if run.peak_memory_bytes is None else memory_text(run.peak_memory_bytes),
            markup.text(_verdict(line)) or "-",
            markup.text(wording.device_text(run.device)),
            f'<span class="u-nowrap">{markup.text(elapsed)}</span>',
            f'<span class="u-faint u-nowrap">{markup.text(frame.ago(run.created_at_s))}</span>',
        ),
        href=f"run?run={run.run_id}",
        badge=f'<span class="u-way">{way}</span>',
    )


def _person(owner: str) -> str:
    return owner or "this computer"


def _verdict(line: RunLine) -> str:
    """The first verdict in words: less memory than a baseline; empty for a baseline or without one."""
    if arms.is_baseline(line.run) or line.run.state not in ENDED or " " not in line.arms.strip():
        return ""
    return _verdict_of(line.run.run_id, line.arms, signed_in.viewer())


@st.cache_resource(show_spinner=False, max_entries=512)
def _verdict_of(run_id: str, equal: str, person: tuple[str, str] | None) -> str:
    """Of an ended run; `equal` are the ended runs of its fingerprint."""
    return arms.difference_text(arms.comparison(run_id), "memory_ratio")


def _bar(ticked: Sequence[str]) -> None:
    """Draw what can be done with the ticked runs; the buttons stay where they are."""
    count = len(ticked)
    words = f"{count} selected" if count else "Tick runs to compare or delete them."
    fits = LEAST <= count <= MOST
    tip = f"Tick {LEAST} to {MOST} runs."
    if st.button("Compare", key="runs-compare", icon=":material/balance:", disabled=not fits, help=tip):
        st.switch_page(actions.COMPARE_PAGE, query_params={"runs": ",".join(ticked)})
    if not signed_in.may("delete_run"):
        return
    if st.button("Delete…", key="runs-delete", icon=":material/delete:", disabled=not count):
        ask_to_delete(ticked)
        st.rerun()
    if count == 1:
        _stop(ticked[0])
    if count and st.button("Clear", key="runs-clear", type="tertiary"):
        rows.clear(KEY)
        st.rerun()
    st.html(markup.small(words))


def _stop(run_id: str) -> None:
    """Draw the button that stops the ticked run, if it can be stopped."""
    try:
        run = arms.fitting(frame.service().runs.observe(run_id))
    except NotFound:
        return
    if Event.STOP in run.actions and st.button("Stop…", key=f"stop-{run_id}-", icon=":material/stop:"):
        actions.open_dialog("stop", run_id)
        st.rerun()


def _sort_by(column: SortKey, query: RunQuery) -> None:
    descending = not query.descending if column == query.sort else column in DESCENDING
    st.session_state[SORT] = (column, descending)
    pager.restart(KEY)


def _deletion(run_ids: Sequence[str]) -> None:
    service, found = frame.service().runs, []
    for run_id in run_ids:
        try:
            found.append(service.deletion(run_id))
        except UnifiedNNError as error:
            st.html(markup.notice("orange", "warning", "Not deleted", str(error)))
    for view in found:
        st.html(_told(view))
    can = [view.run_id for view in found if not view.refused]
    st.html(markup.small(f"{STAYS} This cannot be undone."))
    with st.container(horizontal=True, horizontal_alignment="right"):
        if st.button("Keep", key="delete-no"):
            _close()
            st.rerun()
        label = f"Delete {wording.count_text(len(can), 'run')}"
        if st.button(label, key="delete-yes", type="primary", icon=":material/delete:", disabled=not can):
            actions.attempt(lambda: service.delete(can))
            rows.clear(KEY)
            _close()
            st.rerun()


def _told(view: DeletionView) -> str:
    """What goes and what stays, of one run."""
    if view.refused:
        return markup.notice("orange", "block", view.name, view.refused)
    goes = [wording.count_text(view.models, "trained model"), wording.count_text(view.checkpoints, "checkpoint")]
    lines = [f"{', '.join(goes)}, {memory_text(view.size_bytes)}."]
    if view.others:
        others = wording.count_text(view.others, "other run")
        lines.append(f"What stays, but can no longer be compared with it: {others}.")
    if view.taken:
        lines.append(f"Taken into the library, and stay: {', '.join(view.taken)}.")
    return f"<p>{markup.bold(view.name)}: {markup.text(' '.join(lines))}</p>"


def _close() -> None:
    st.session_state.pop(DELETING, None)
