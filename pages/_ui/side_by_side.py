"""Two to six runs or sub-models side by side, and the choice of them."""

from collections.abc import Sequence
from functools import partial
from urllib.parse import urlencode

import streamlit as st

from pages._ui import actions, charts, frame, signed_in
from unifiednn_core.base.errors import BadInput, NotFound
from unifiednn_core.spec.lifecycle import ENDED
from unifiednn_core.views import markup, wording
from unifiednn_core.views.report import selection
from unifiednn_core.views.runs import RunView
from unifiednn_core.views.side_by_side import FEWEST, MOST, Side, counted, merged

OFFERED = 200
"""Runs that can be chosen here: the browser gets the names of all of them, and of their sub-models."""
REFS = "runs"
"""Name in the address: references, separated by commas."""
KINDS = {
    "html": ("Report", "One HTML file with everything on this page. It opens without a network."),
    "json": ("JSON", "Figures, settings, machines and weights."),
    "csv": ("CSV", "Every point of every curve."),
}
TABS = {"Settings": selection.settings_table, "Machines": selection.machines_table, "Weights": selection.weights_table}


def asked() -> list[str]:
    """The references in the address."""
    return [ref for ref in st.query_params.get(REFS, "").split(",") if ref]


def draw(refs: Sequence[str]) -> None:
    """Draw the page of these references; every five seconds while one of them trains."""
    try:
        sides = frame.service().comparisons.side_by_side(refs)
    except (BadInput, NotFound) as error:
        st.html(markup.title("Side by side"))
        actions.show_error(error)
        _back()
        return
    lives = any(side.view.state not in ENDED for side in sides)
    frame.live(partial(_draw, tuple(refs)), False, idle_s=frame.IDLE_PERIOD_S if lives else None)


def _draw(refs: Sequence[str], _live: bool) -> None:
    sides = frame.service().comparisons.side_by_side(refs)
    with st.container(horizontal=True, vertical_alignment="center"):
        st.html(markup.title("Side by side", markup.note(counted(sides))))
        if signed_in.may("side_by_side_report"):
            query = urlencode({REFS: ",".join(refs)})
            for kind, (label, tip) in KINDS.items():
                actions.download_link(label, f"files/selections.{kind}?{query}", tip=tip, primary=kind == "html")
        _back()
    if warned := selection.cautions_html(sides):
        st.html(warned)
    st.html(selection.figures_table(sides))
    if any(part.loss.x for side in sides for part in side.view.submodels):
        charts.of_selection(merged(sides), [side.view for side in sides], partial(selection.charts, sides))
    _details(sides)


def _details(sides: Sequence[Side]) -> None:
    for tab, table in zip(st.tabs(list(TABS), key="selection-tabs"), TABS.values(), strict=True):
        tab.html(table(sides))


def _back() -> None:
    if st.button("All comparisons", key="all-comparisons", icon=":material/list:", type="tertiary"):
        st.query_params.pop(REFS, None)
        st.rerun()


def choose(runs: Sequence[RunView], total: int) -> None:
    """Draw the choice of what to compare among the newest runs, of so many in all."""
    named = {run.run_id: f"{run.name} · {wording.title(run.mode)} · {frame.ago(run.created_at_s)}" for run in runs}
    named |= {f"{run.run_id}/{part.name}": f"{run.name} / {part.name}" for run in runs for part in run.submodels}
    with st.container(horizontal=True, vertical_alignment="bottom", key="choose-sides"):
        chosen = st.multiselect(
            "Side by side: two to six runs, sub-models or baselines",
            list(named),
            key="sides",
            max_selections=MOST,
            format_func=lambda ref: wording.plain(named[ref]),
            placeholder="Search by name",
        )
        few = len(chosen) < FEWEST
        if st.button("Compare", key="compare-sides", icon=":material/balance:", type="primary", disabled=few):
            st.query_params[REFS] = ",".join(chosen)
            st.rerun()
    if len(runs) < total:
        st.html(markup.small(f"The newest {len(runs)} runs. Tick older ones in the list of runs."))
