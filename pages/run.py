"""Run: one hybrid while it trains, and after. `?run=ID` names it; without one the runs are listed."""

import json

import streamlit as st

from pages._ui import actions, figures, frame, markup, run_rows, submodels, wording
from pages._ui.live_chart import live_chart
from unifiednn_core.errors import NotFound
from unifiednn_core.lifecycle import ENDED, State
from unifiednn_core.units import NOT_AVAILABLE, duration_text, memory_text, percent_text
from unifiednn_core.views import RunView

LIVE_PERIOD_S = 1.0
TABS = ("Events", "Values", "Graph", "Spec and command")
SHOWN_EVENTS = 200


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
    actions.stop_dialog()
    live = view.state not in ENDED
    st.fragment(run_every=LIVE_PERIOD_S if live else None)(draw)(run_id, live)


def draw(run_id: str, live: bool) -> None:
    """Draw everything that moves; `live` is whether the run lived when the page was drawn."""
    view = frame.service().observe(run_id)
    if (view.state not in ENDED) != live:
        st.rerun()  # and stop, or begin, to look every second
    actions.show_refusals()
    _head(view)
    _banners(view)
    st.html(markup.strip(_facts(view)))
    _charts(view)
    st.html(markup.section("Sub-models", f"{len(view.submodels)} in order of arrival"))
    submodels.draw_table(view)
    _details(view)


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
        actions.state_buttons(view.run_id, view.name, view.state)
        if st.button("All runs", key="all-runs", icon=":material/list:", type="tertiary"):
            st.query_params.pop("run", None)
            st.rerun()


def _banners(view: RunView) -> None:
    age_s = view.heartbeat_age_s
    if view.state not in ENDED and age_s is not None and age_s > wording.STALE_AFTER_S:
        st.html(markup.notice("orange", "warning", "Stale", wording.stale_text(age_s)))
    if view.state in (State.FAILED, State.INTERRUPTED):
        words = wording.STATES[view.state]
        st.html(markup.notice("red", words.icon, words.label, view.cause or words.sentence, view.remedy or ""))
    elif view.state in (State.QUEUED, State.STARTING, State.PAUSING, State.PAUSED, State.STOPPING):
        words = wording.STATES[view.state]
        place = f" Position {view.queue_position} in the queue." if view.queue_position else ""
        st.html(markup.notice(words.colour, words.icon, words.label, words.sentence + place))


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
    name = markup.signed_name(now.arrival, now.name)
    return markup.Fact("Trains now", name, markup.text(view.now_reason or ""), wide=True)


def _charts(view: RunView) -> None:
    if not any(submodel.loss.x for submodel in view.submodels):
        st.html(f'<div class="u-faint u-small">{markup.text(wording.NO_CURVES)}</div>')
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


def _details(view: RunView) -> None:
    # Only the open tab is drawn, so that a tick costs nothing for the others.
    events, values, graph, spec = st.tabs(TABS, key="details", on_change="rerun")
    if events.open:
        with events:
            _events(view)
    if values.open:
        values.html(submodels.values(view))
    if graph.open:
        with graph:
            _graph(view)
    if spec.open:
        with spec:
            st.markdown("Save the spec as `spec.json`, then train it in a terminal:")
            st.code("unifiednn train spec.json", language="bash")
            _spec(view)


def _graph(view: RunView) -> None:
    dot = frame.service().graph_dot(view.run_id)
    if dot:
        st.graphviz_chart(dot, width="content", alt="The hybrid model as a graph, one box for each stretch of layers")
    else:
        st.html(f'<div class="u-faint u-small">{markup.text(wording.NO_GRAPH)}</div>')


def _events(view: RunView) -> None:
    rows = [
        (
            markup.faint(frame.clock(event.at_s)),
            markup.text(event.submodel or "run"),
            markup.text(event.kind.replace("_", " ")),
            markup.text(event.message),
        )
        for event in reversed(view.events[-SHOWN_EVENTS:])
    ]
    table = markup.table(f"Newest first, at most {SHOWN_EVENTS}", ("Time", "Of", "Event", "Message"), rows)
    st.html(f'<div class="u-log">{table}</div>')


def _spec(view: RunView) -> None:
    text = json.dumps(view.spec, indent=2)
    with st.container(horizontal=True):
        st.download_button(
            "Download spec",
            text,
            file_name=f"{view.run_id}-spec.json",
            mime="application/json",
            on_click="ignore",
            icon=":material/download:",
            key="download-spec",
        )
        st.download_button(
            "Download results as JSON",
            data=lambda: json.dumps(frame.service().document(view.run_id), indent=2),
            file_name=f"{view.run_id}.json",
            mime="application/json",
            on_click="ignore",
            icon=":material/download:",
            key="download-document",
        )
    st.code(text, language="json", height=420)


if __name__ == "__main__":
    main()
