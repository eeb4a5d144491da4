"""The tabs of a run: models, events, logs, values, memory, graph, spec."""

import json

import streamlit as st

from pages._ui import actions, frame, predictions, results, run_logs, signed_in, submodels
from unifiednn_core.spec.lifecycle import ENDED
from unifiednn_core.views import markup
from unifiednn_core.views.runs import RunView

TABS = ("Models", "Events", "Logs", "Values", "Memory", "Graph", "Spec and command")
DOWNLOADS = (
    ("Download spec", "specs", "json"),
    ("Download results as JSON", "runs", "json"),
    ("Download metrics as CSV", "metrics", "csv"),
)


def draw(view: RunView) -> None:
    """Draw the tabs."""
    # Only the open tab is drawn, so that a tick costs nothing for the others.
    drawn = (results.models, run_logs.events, run_logs.worker, _values, _memory, _graph, _spec)
    ended = view.state in ENDED and any(part.artifact for part in view.submodels)
    # Kept, so that the end of a run opens no other tab than the one that is read.
    first = st.session_state.setdefault(f"first-tab-{view.run_id}", "Models" if ended else "Events")
    tabs = st.tabs(list(TABS), default=first, key="details", on_change="rerun")
    for tab, draw_tab in zip(tabs, drawn, strict=True):
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


def _spec(view: RunView) -> None:
    st.markdown("Save the spec as `spec.json`, then train it in a terminal:")
    st.code("unifiednn train spec.json", language="bash")
    if signed_in.may("spec_document"):
        with st.container(horizontal=True):
            for label, kind, suffix in DOWNLOADS:
                actions.download_link(label, actions.download_address(kind, f"{view.run_id}.{suffix}"))
    st.code(json.dumps(view.spec, indent=2), language="json", height=420)
