"""Run: one hybrid while it trains, and after. `?run=ID` names it; without one the runs are listed."""

import streamlit as st

from pages._ui import (
    actions,
    add_dialog,
    adjust_dialog,
    banners,
    dialogs,
    edits,
    figures,
    frame,
    markup,
    run_details,
    run_rows,
    stop_dialog,
    submodels,
    wording,
)
from pages._ui.live_chart import live_chart
from unifiednn_core.errors import NotFound
from unifiednn_core.lifecycle import ENDED, State
from unifiednn_core.units import NOT_AVAILABLE, duration_text, memory_text, percent_text
from unifiednn_core.views import RunView

LIVE_PERIOD_S = 1.0


def main() -> None:
    """Draw the run; it is observed every second while it lives, and not at all once it has ended."""
    frame.page("Run")
    run_id = st.query_params.get("run")
    if run_id is None:
        _choose()
        return
    try:
        view = frame.service().observe(run_id)
    except NotFound:
        st.html(markup.title("Run"))
        st.html(markup.notice("red", "error", "No such run", f"There is no run '{run_id}'.", "Choose one below."))
        _choose()
        return
    st.query_params["run"] = run_id  # a link from this page to itself leaves the address as it was
    for dialog in (stop_dialog, adjust_dialog, add_dialog):
        dialog.draw()
    live = view.state not in ENDED
    st.fragment(run_every=LIVE_PERIOD_S if live else None)(draw)(run_id, live)


def draw(run_id: str, live: bool) -> None:
    """Draw everything that moves; `live` is whether the run lived when the page was drawn."""
    view = frame.service().observe(run_id)
    if (view.state not in ENDED) != live:
        st.rerun()  # and stop, or begin, to look every second
    actions.show_refusals()
    _head(view)
    banners.draw(view)
    st.html(markup.strip(_facts(view)))
    _charts(view)
    _section(view)
    submodels.draw_table(view)
    run_details.draw(view)


def _choose() -> None:
    runs = frame.service().runs()
    st.html(markup.title("Run", markup.note("Choose a run.")))
    if not runs:
        st.html(markup.empty("No run yet", wording.NO_RUNS))
        with st.container(horizontal=True, horizontal_alignment="center"):
            actions.demo_button("demo-choose", primary=True)
        return
    run_rows.draw_rows(runs, key="choose")


def _head(view: RunView) -> None:
    with st.container(horizontal=True, vertical_alignment="center"):
        rhythm = "updates every second" if view.state not in ENDED else "ended, no longer updated"
        beside = f"{view.policy_text} · data as of {frame.clock()}, {rhythm}"
        st.html(markup.title(view.name, markup.state_badge(view.state), markup.note(beside)))
        # Where a run is interrupted, its banner says what a resume does and has the button.
        actions.state_buttons(view.run_id, view.name, view.actions - banners.own_actions(view))
        if edits.is_open(view) and st.button("Adjust", key="adjust", icon=":material/tune:"):
            dialogs.ask("adjust", view.run_id)
            st.rerun()
        if st.button("All runs", key="all-runs", icon=":material/list:", type="tertiary"):
            st.query_params.pop("run", None)
            st.rerun()


def _section(view: RunView) -> None:
    with st.container(horizontal=True, vertical_alignment="center", key="section-submodels"):
        st.html(markup.section("Sub-models", wording.kept_text(view.checkpoint_text, view.recovery)))
        if edits.is_open(view) and st.button(
            "Add a sub-model", key="add-submodel", icon=":material/add:", type="tertiary", help=wording.ADD_HELP
        ):
            dialogs.ask("add", view.run_id)
            st.rerun()


def _facts(view: RunView) -> list[markup.Fact]:
    done, total = sum(s.steps_done for s in view.submodels), sum(s.steps_total for s in view.submodels)
    completed = sum(s.state is State.COMPLETED for s in view.submodels)
    last_bytes = int(view.memory.y[-1]) if view.memory.y else None
    threads = "" if view.threads is None else wording.count_text(view.threads, "thread")
    return [
        markup.Fact(
            "Progress",
            percent_text(view.progress),
            markup.bar(view.progress, "Progress of the run") + markup.text(f"{done:,} of {total:,} steps"),
        ),
        markup.Fact(
            "Elapsed",
            "-" if view.elapsed_s is None else duration_text(view.elapsed_s),
            markup.text(f"{completed} of {len(view.submodels)} sub-models completed"),
        ),
        _who(view),
        markup.Fact(
            "Memory" if view.state not in ENDED else "Last memory",
            memory_text(last_bytes),
            markup.text(f"peak {memory_text(view.peak_memory_bytes)} · {view.memory_source or NOT_AVAILABLE}"),
        ),
        markup.Fact("Device", markup.text(view.device), markup.text(threads)),
    ]


def _who(view: RunView) -> markup.Fact:
    if view.state in ENDED:
        return markup.Fact(
            "Ended", frame.ago(view.ended_at_s), markup.text(wording.STATES[view.state].sentence), wide=True
        )
    now = next((submodel for submodel in view.submodels if submodel.holds_device), None)
    if now is None:
        return markup.Fact("Trains now", markup.faint("nobody"), wide=True)
    name = markup.signed_name(now.number, now.name)
    return markup.Fact("Trains now", name, markup.text(view.now_reason or ""), wide=True)


def _charts(view: RunView) -> None:
    if not any(submodel.loss.x for submodel in view.submodels):
        st.html(markup.small(wording.NO_CURVES))
        return
    charts = (
        ("loss", figures.curves(view, "loss"), "Loss of each sub-model by epoch"),
        ("accuracy", figures.curves(view, "accuracy"), "Accuracy of each sub-model by epoch"),
        ("schedule", figures.schedule(view), "Who held the device and when"),
        ("memory", figures.memory(view), "Memory in use over time"),
    )
    # Two rows of two, so that a phone shows them in this order.
    columns = [*st.columns(2, gap="medium"), *st.columns(2, gap="medium")]
    for column, (name, figure, label) in zip(columns, charts, strict=True):
        with column:
            live_chart(figure, key=f"chart-{name}", label=label)


if __name__ == "__main__":
    main()
