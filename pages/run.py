"""Run: one hybrid or baseline, during and after its training. `?run=ID` names it; without an id, a list of runs."""

from collections.abc import Callable
from functools import cache, partial

import streamlit as st

from pages._ui import (
    actions,
    arms,
    banners,
    charts,
    dialogs,
    focus,
    forecast_panel,
    frame,
    results,
    run_details,
    run_strip,
    run_table,
    signed_in,
    submodels,
)
from unifiednn_core.base.errors import NotFound
from unifiednn_core.spec.lifecycle import ENDED, Event
from unifiednn_core.views import markup, wording
from unifiednn_core.views.report import cards
from unifiednn_core.views.runs import RunView
from unifiednn_core.views.sweeps import sweep_rows

SHARES = "trained in one process with the networks of others, with the same bits as alone"
DOT = {"green": "#1f9a63", "red": "#e0453a", "orange": "#c98212", "gray": "#98a1b0"}
"""Colour of the dot in the icon of the browser's tab, by colour of the state; none while it trains."""
DELETING = "deleting-own-page"
DETAILS_PERIOD_S = 3.0
"""Of tables and tabs below the sub-models."""


def main() -> None:
    """Draw the run; every second while it or one of its baselines is active, its details every three."""
    frame.page("Run")
    run_id = st.query_params.get("run")
    try:
        view = frame.service().runs.observe(run_id) if run_id else None
    except NotFound:
        view = None
        if st.session_state.pop(DELETING, None) == run_id:  # from its own page
            _leave()
        else:
            st.html(markup.notice("red", "error", "No such run", f"There is no run '{run_id}'.", "Choose one below."))
    focus.draw()
    dialogs.draw_all()
    run_table.draw_deletion()
    if run_id is None or view is None:
        frame.live(run_table.draw, frame.service().runs.run_choices().living > 0, idle_s=frame.IDLE_PERIOD_S)
        return
    st.query_params["run"] = run_id  # a link from this page to itself leaves the address unchanged
    lives = _lives(view)
    frame.live(partial(draw, run_id), lives)
    frame.live(partial(_after, run_id), lives, every_s=DETAILS_PERIOD_S)


def draw(run_id: str, live: bool) -> bool:
    """Draw everything that moves; `live` says whether the run or a baseline was active before, the answer if one is."""
    view = _observed(run_id)
    actions.show_refusals()
    _tab(view)
    _head(view, live)
    banners.draw(view)
    baseline = arms.is_baseline(view)
    equal = () if baseline else arms.comparable(run_id)
    found = arms.newest(equal)
    comparison = arms.comparison(run_id) if found and view.state in ENDED else None
    with st.container(key="part-strip"):
        st.html(run_strip.html(view, comparison))
    shown = False if baseline else arms.draw_row(view, found)
    if comparison is not None and (verdicts := cards.given(comparison)):
        st.html(verdicts)
    # On a phone the style sheet draws the parts from the charts on after the sub-models.
    with st.container(key="part-charts"):
        charts.of_run(view, arms.with_curves(equal) if shown else ())
    with st.container(key="part-submodels"):
        _section(view)
        submodels.draw_table(view)
    return _lives(view)


def _after(run_id: str, _live: bool) -> None:
    """Draw what moves less; the page is drawn anew when the run ends."""
    view = _observed(run_id)
    with st.container(key="part-after"):
        _sweeps(view)
        forecast_panel.outcome(view)
        run_details.draw(view)


def _observed(run_id: str) -> RunView:
    return arms.fitting(frame.service().runs.observe(run_id, within_s=frame.RECENT_S))


def _lives(view: RunView) -> bool:
    return view.state not in ENDED or arms.any_lives(arms.comparable(view.run_id))


def _tab(view: RunView) -> None:
    """Title and icon of the browser's tab: progress while it trains, then how it ended."""
    words = wording.run_words(view)
    ahead = words.label if view.state in ENDED else f"{100 * view.progress:.0f} %"
    dot = DOT.get(words.colour, "") if view.state in ENDED else ""
    mark = f'<circle cx="25" cy="25" r="7" fill="{dot}" stroke="#fff" stroke-width="2"/></svg>'
    frame.tab(f"{ahead} {view.name} · UnifiedNN", _icon(mark if dot else ""))


@cache
def _icon(mark: str) -> str:
    return frame.ICON.read_text(encoding="utf-8").replace("</svg>", mark or "</svg>")


def _head(view: RunView, live: bool) -> None:
    with st.container(horizontal=True, vertical_alignment="center", key="run-head"):
        rhythm = "live" if live else "no longer updated"
        beside = f"{arms.way_text(view)} · data as of {frame.clock()}, {rhythm}"
        done = f'<span class="u-done">{100 * view.progress:.0f} %</span>'
        bar = markup.bar(view.progress, "Progress of the run")
        badges = (arms.badge(view), markup.run_badge(view), done, markup.note(beside), bar)
        st.html(markup.title(view.name, *badges))
        with st.container(horizontal=True, wrap=False, width="content", key="run-actions"):
            _head_actions(view)


def _head_actions(view: RunView) -> None:
    """The actions that fit its state in fixed order, and the others in a menu."""
    # The banner of an interrupted run explains the resume and has its button.
    actions.state_buttons(view.run_id, view.name, view.actions - banners.own_actions(view) - {Event.SAVE})
    baseline = arms.is_baseline(view)
    if view.state in ENDED and not baseline:
        results.download_all(view)
    if (view.state in ENDED or baseline) and st.button("Compare", key="open-compare-head", icon=":material/balance:"):
        st.switch_page(actions.COMPARE_PAGE, query_params={"run": view.run_id})
    if dialogs.is_open(view) and not baseline and st.button("Adjust", key="adjust", icon=":material/tune:"):
        actions.open_dialog("adjust", view.run_id)
        st.rerun()
    if view.state in ENDED and not baseline:
        results.train_again(view.run_id)
    _menu(view)


def _menu(view: RunView) -> None:
    choices: dict[str, Callable[[], None]] = {}
    if Event.SAVE in view.actions:
        choices["Save now"] = partial(actions.carry_out, Event.SAVE, view.run_id, None)
    choices["All runs"] = _leave
    if view.state in ENDED and signed_in.may("delete_run"):
        choices["Delete…"] = partial(_ask_to_delete, view.run_id)
    icon, tip = ":material/more_vert:", "More actions"
    with st.container(key="icons-run-menu", width="content"):
        asked = st.menu_button("More actions", list(choices), key="run-menu", icon=icon, help=tip, type="tertiary")
    if asked is not None and asked in choices:
        choices[asked]()
        st.rerun()


def _ask_to_delete(run_id: str) -> None:
    st.session_state[DELETING] = run_id
    run_table.ask_to_delete((run_id,))


def _leave() -> None:
    st.query_params.pop("run", None)


def _section(view: RunView) -> None:
    with st.container(horizontal=True, vertical_alignment="center", key="section-submodels"):
        if arms.is_baseline(view):
            st.html(markup.section("Sub-models", "one process each"))
            return
        st.html(markup.section("Sub-models", _kept(view)))
        label, key, icon = "Add a sub-model", "add-submodel", ":material/add:"
        adds = dialogs.is_open(view) and not view.shared
        if adds and st.button(label, key=key, icon=icon, type="tertiary", help=wording.ADD_HELP):
            actions.open_dialog("add", view.run_id)
            st.rerun()


def _kept(view: RunView) -> str:
    return SHARES if view.shared else wording.kept_text(view.checkpoint_text, view.recovery)


def _sweeps(view: RunView) -> None:
    numbers = {part.name: part.number for part in view.submodels}
    for sweep, rows in sweep_rows(view).items():
        looks = {"Sub-model": lambda name: markup.signed_name(numbers[str(name)], str(name))}
        heading, count = f"Sweep {sweep}", wording.count_text(len(rows), "member")
        st.html(markup.section(heading, f"{count}, best first"))
        st.html(markup.table(heading, rows, looks))


if __name__ == "__main__":
    main()
