"""Compare: what merging saved or cost against plain PyTorch; or two to six runs side by side.

`?run=ID` names the hybrid or one of its baselines, `?runs=A,B/part` runs and sub-models.
"""

import json
from collections.abc import Mapping
from functools import partial

import streamlit as st

from pages._ui import actions, arms, charts, dialogs, frame, pager, run_lists, side_by_side, signed_in
from unifiednn_core.base.errors import Forbidden, NotFound
from unifiednn_core.spec.lifecycle import ENDED
from unifiednn_core.spec.run import Mode
from unifiednn_core.spec.run_query import RunQuery
from unifiednn_core.views import markup, wording
from unifiednn_core.views.comparison import Comparison
from unifiednn_core.views.figures.curves import Quantity
from unifiednn_core.views.report import cards, tables
from unifiednn_core.views.report.charts import arms_of
from unifiednn_core.views.report.charts import charts as charts_of
from unifiednn_core.views.runs import RunView

QUANTITIES: tuple[Quantity, ...] = ("loss", "accuracy")
CURVES_HELP = "by epoch, equal weights give equal curves; over time the arms differ"
REPORT_HELP = "One HTML file with everything on this page. It opens without a network."
LIST, HYBRIDS = "compare", 50
"""Key of the list of hybrids, and lines on a page of it."""
TABS = ("Sub-models", "Weights", "Environment", "Spec and command")


def main() -> None:
    """Draw the comparison; every second while one of its arms is active."""
    frame.page("Compare")
    if refs := side_by_side.asked():
        side_by_side.draw(refs)
        return
    run_id = st.query_params.get("run")
    try:
        comparison = frame.service().comparisons.comparison(run_id) if run_id else None
    except (NotFound, Forbidden) as error:
        comparison = None
        st.html(markup.notice("red", "error", "Nothing to compare", str(error), "Choose one below."))
    if run_id is None or comparison is None:
        st.html(markup.title("Compare"))
        _choose()
        return
    st.query_params["run"] = run_id
    dialogs.draw_all()
    frame.live(partial(draw, run_id), arms.any_lives(arms.comparable(comparison.run_id)))


def _choose() -> None:
    """Draw the choice of what to compare: the newest runs side by side, and a list of hybrids."""
    runs = frame.service().runs
    newest = runs.listing(RunQuery(rows=side_by_side.OFFERED))
    if newest.total > 1:
        side_by_side.choose([line.run for line in newest.lines], newest.total)
        st.html(markup.section("Hybrids", "each against the same training with plain PyTorch"))
    found = runs.compared(pager.page_of(LIST), HYBRIDS)
    run_lists.draw_hybrids(found.runs)
    pager.draw(found.page, found.total, HYBRIDS, key=LIST)


def draw(run_id: str, _live: bool) -> bool:
    """Draw everything that moves; returns whether an arm is active."""
    comparison = frame.service().comparisons.comparison(run_id)
    actions.show_refusals()
    views = _views(comparison)
    found: Mapping[Mode, RunView] = {mode: view for mode, view in views.items() if mode != "hybrid"}
    _head(comparison, views)
    for view in views.values():
        _waiting(view)
    st.html(cards.cards(comparison))
    with st.container(horizontal=True, vertical_alignment="center", key="section-missing"):
        arms.missing_buttons(views["hybrid"], found)
    st.html(tables.arms(comparison))
    _charts(views)
    _details(comparison, views["hybrid"])
    return arms.any_lives(arms.comparable(comparison.run_id))


def _views(comparison: Comparison) -> dict[Mode, RunView]:
    """One run of each arm with its curves: this hybrid, and the newest of each kind of baseline."""
    runs = arms.comparable(comparison.run_id)
    hybrid = next(run for run in runs if run.run_id == comparison.run_id)
    shown: dict[Mode, RunView] = {"hybrid": hybrid, **arms.newest(runs)}
    return {mode: arms.observed(run) for mode, run in shown.items()}


def _head(comparison: Comparison, views: Mapping[Mode, RunView]) -> None:
    hybrid = views["hybrid"]
    with st.container(horizontal=True, vertical_alignment="center"):
        beside = f"{hybrid.policy_text} · {hybrid.device}, {wording.count_text(hybrid.threads or 1, 'thread')}"
        st.html(markup.title(comparison.name, markup.state_badge(hybrid.state), markup.note(beside)))
        if signed_in.may("report"):
            report = actions.download_address("reports", f"{comparison.run_id}.html")
            actions.download_link("Report", report, tip=REPORT_HELP, primary=True)
            actions.download_link("JSON", actions.download_address("comparisons", f"{comparison.run_id}.json"))
        if st.button("Open the run", key="open-hybrid", icon=":material/monitoring:"):
            actions.open_run(comparison.run_id)
        if st.button("All comparisons", key="all-comparisons", icon=":material/list:", type="tertiary"):
            st.query_params.pop("run", None)
            st.rerun()


def _waiting(view: RunView) -> None:
    """One line for an arm that has not ended, with the button that ends it."""
    if view.state in ENDED:
        return
    with st.container(horizontal=True, vertical_alignment="center", key=f"row-arm-{view.mode}"):
        place = f"position {view.queue_position} in the queue" if view.queue_position else ""
        line = f"{markup.arm_badge(view.mode)}{markup.state_badge(view.state)}{markup.faint(place)}"
        st.html(f'<div class="u-line">{line}</div><div class="u-gap">{markup.bar(view.progress, view.mode)}</div>')
        if arms.is_baseline(view):
            actions.state_buttons(view.run_id, f"the {view.mode} baseline", arms.fitting(view).actions)


def _charts(views: Mapping[Mode, RunView]) -> None:
    if not any(submodel.loss.x for view in views.values() for submodel in view.submodels):
        st.html(markup.small(wording.NO_CURVES))
        return
    with st.container(horizontal=True, vertical_alignment="center", key="section-curves"):
        st.html(markup.section("Curves", CURVES_HELP))
        key, more = "compare-quantity", "collapsed"
        quantity = frame.segments(
            "Quantity", QUANTITIES, QUANTITIES[0], key, lambda one: one.capitalize(), label_visibility=more
        )
    charts.of_comparison(views["hybrid"], arms_of(views), lambda: charts_of(views, (quantity,)), quantity)


def _details(comparison: Comparison, hybrid: RunView) -> None:
    *shown, spec = st.tabs(list(TABS), key="compare-tabs", on_change="rerun")
    for tab, table in zip(shown, (tables.submodels, tables.weights, tables.environment), strict=True):
        if tab.open:
            tab.html(table(comparison))
    if spec.open:
        with spec:
            st.markdown("Save the spec as `spec.json`, then compare in a terminal:")
            st.code("unifiednn compare spec.json --html report.html", language="bash")
            st.code(json.dumps(hybrid.spec, indent=2), language="json", height=320)


if __name__ == "__main__":
    main()
