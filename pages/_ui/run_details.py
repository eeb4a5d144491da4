"""The tabs of a run: events, values, memory, graph, spec."""

import json

import streamlit as st

from pages._ui import actions, frame, predictions, signed_in, submodels
from unifiednn_core.views import markup, wording
from unifiednn_core.views.runs import RunView

TABS = ("Events", "Values", "Memory", "Graph", "Spec and command")
SHOWN_EVENTS = 200
DOWNLOADS = (
    ("Download spec", "specs", "json"),
    ("Download results as JSON", "runs", "json"),
    ("Download metrics as CSV", "metrics", "csv"),
)


def draw(view: RunView) -> None:
    """Draw the tabs."""
    # Only the open tab is drawn, so that a tick costs nothing for the others.
    drawn = (_events, _values, _memory, _graph, _spec)
    for tab, draw_tab in zip(st.tabs(TABS, key="details", on_change="rerun"), drawn, strict=True):
        if tab.open:
            with tab:
                draw_tab(view)


def _values(view: RunView) -> None:
    st.html(submodels.values(view))


def _memory(view: RunView) -> None:
    st.html(predictions.measured(view))


def _graph(view: RunView) -> None:
    dot = frame.service().runs.graph_dot(view.run_id)
    if dot:
        st.graphviz_chart(dot, width="content", alt="The hybrid model as a graph, one box for each stretch of layers")
    else:
        st.html(markup.small("The graph appears once the worker has merged the networks."))


def _events(view: RunView) -> None:
    table = markup.frame(
        {"Time": frame.clock(event.at_s), "Sub-model": event.submodel or "run"}
        | {"Event": wording.title(event.kind), "Message": event.message}
        for event in reversed(view.events[-SHOWN_EVENTS:])
    )
    caption = f"Newest first, at most {SHOWN_EVENTS}"
    st.html(f'<div class="u-log">{markup.table(caption, table, {"Time": markup.faint})}</div>')


def _spec(view: RunView) -> None:
    st.markdown("Save the spec as `spec.json`, then train it in a terminal:")
    st.code("unifiednn train spec.json", language="bash")
    if signed_in.may("spec_document"):
        with st.container(horizontal=True):
            for label, kind, suffix in DOWNLOADS:
                actions.download_link(label, actions.download_address(kind, f"{view.run_id}.{suffix}"))
    st.code(json.dumps(view.spec, indent=2), language="json", height=420)
