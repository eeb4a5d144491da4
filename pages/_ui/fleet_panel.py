"""A simulated cluster: what is asked, progress, and what each placement and policy would do. For operators."""

import streamlit as st

from pages._ui import charts, frame
from unifiednn_core.base.errors import BadInput
from unifiednn_core.scheduling.cluster_arms import POLICIES
from unifiednn_core.scheduling.cluster_run import MOST_GPUS, MOST_JOBS, ClusterRequest
from unifiednn_core.scheduling.workloads import STATISTICS
from unifiednn_core.views import fleet, markup, wording
from unifiednn_core.views.fleet import FleetSimulation

QUERY = "cluster"
OWN = "own"
"""Jobs of the operator's own CSV."""
QUESTION = "What would the policies do on many GPUs, with jobs of published clusters or your own?"
POLICIES_HELP = "Without a choice: all of them in hybrids, a queue for each GPU, and with moves."
FAILURES_HELP = "Mean hours between two failures of a GPU. What trains there goes on from its last checkpoint."
OFF_HELP = "0: placement knows how long jobs take. 1: it is wrong by a factor of 2.7 or more in a third of all cases."
JOBS_HELP = "One row for each job, with submitted_s and duration_s; memory_bytes, owner and gpus if known."
STATES = {
    "ended": ("stop_circle", "It was cancelled, or the server ended. What was simulated is shown."),
    "refused": ("error", "It could not be simulated: {why}"),
}
GPUS, GIB_EACH, JOBS, LOAD = 1000, 80.0, 30_000, 1.2


def open_button() -> None:
    """Draw the button that opens the cluster simulator."""
    st.html(markup.section("A cluster", QUESTION))
    if st.button("Simulate a cluster", key="cluster-open", icon=":material/lan:"):
        st.query_params[QUERY] = "1"
        st.rerun()


def draw() -> None:
    """Draw the page."""
    with st.container(horizontal=True, vertical_alignment="center"):
        st.html(markup.title("A cluster", markup.note("simulated; nothing is trained")))
        if st.button("Back to the queue", key="cluster-close", icon=":material/arrow_back:", type="tertiary"):
            st.query_params.pop(QUERY, None)
            st.rerun()
    found = frame.service().fleet.fleet_simulation()
    runs = found is not None and found.state == "runs"
    _ask(runs=runs)
    frame.live(_result, runs)


def _ask(*, runs: bool) -> None:
    """Draw what can be asked, and start it."""
    with st.container(key="cluster-form"):
        first, second, third, fourth = st.columns(4)
        gpus = first.number_input("GPUs", 1, MOST_GPUS, GPUS, 8, key="cluster-gpus")
        gib = second.number_input("GiB per GPU", 1.0, 10_000.0, GIB_EACH, 8.0, "%g", key="cluster-gib")
        jobs = third.number_input("Jobs", 2, MOST_JOBS, JOBS, 1000, key="cluster-jobs")
        load = fourth.number_input("Load offered", 0.01, 100.0, LOAD, 0.1, "%g", key="cluster-load")
        names = {name: name.capitalize() for name in STATISTICS} | {OWN: "My own jobs (CSV)"}
        source = first.selectbox("Jobs like those of", list(names), 1, names.__getitem__, "cluster-source")
        failures = second.number_input(
            "Mean time between GPU failures (h)", 0.1, 1e6, None, 50.0, "%g", key="cluster-failures",
            help=FAILURES_HELP,
        )  # fmt: skip
        off = third.number_input(
            "Duration error (log-normal sigma)", 0.0, 5.0, 0.0, 0.5, "%g", key="cluster-off", help=OFF_HELP
        )
        several = fourth.number_input("Jobs on several GPUs (%)", 0, 100, 0, 5, key="cluster-several")
        with st.container(horizontal=True, vertical_alignment="bottom"):
            policies = st.multiselect(
                "Policies", POLICIES, key="cluster-policies", help=POLICIES_HELP, format_func=wording.title,
                placeholder="all of them", width=420,
            )  # fmt: skip
            moves = st.toggle("With moves", key="cluster-moves", disabled=not policies)
        own = source == OWN
        text = st.text_area("Jobs as CSV", key="cluster-trace", height=140, help=JOBS_HELP) if own else ""
    request = ClusterRequest(
        gpus=int(gpus), gpu_gib=float(gib), jobs=int(jobs), load=float(load), failure_h=failures,
        statistics="philly" if own else source, several=several / 100, estimates_off=float(off),
        policies=tuple(policies), moves=bool(moves and policies),
    )  # fmt: skip
    refused: BadInput | None = None
    with st.container(horizontal=True, vertical_alignment="center"):
        label, icon = "Simulate", ":material/play_arrow:"
        wrong = runs or (own and not text.strip())
        if st.button(label, key="cluster-start", icon=icon, type="primary", disabled=wrong):
            try:
                frame.service().fleet.simulate_fleet(request, text)
            except BadInput as error:
                refused = error
            else:
                st.rerun()
        if runs and st.button("Cancel", key="cluster-cancel", icon=":material/stop:"):
            frame.service().fleet.cancel_fleet()
            st.rerun()
    if refused is not None:
        st.html(markup.findings(refused.findings))


def _result(_live: bool) -> bool:
    """Draw what is simulated so far; returns whether more comes."""
    found = frame.service().fleet.fleet_simulation()
    if found is None:
        st.html(markup.empty("Nothing simulated yet", "Choose a cluster above."))
        return False
    _state(found)
    if found.workload is not None and found.arms:
        st.html(markup.small(fleet.told_of(found.workload)))
        charts.of_check(fleet.charts(found.workload, found.arms))
        _table(found)
        lines = "".join(f"<li>{markup.text(line)}</li>" for line in fleet.reading(found.workload, found.arms))
        st.html(markup.section("How to read it") + f'<ul class="u-small">{lines}</ul>')
    return found.state == "runs"


def _state(found: FleetSimulation) -> None:
    if found.state == "runs":
        total = 0 if found.workload is None else len(found.workload["arms"])
        words = f"Simulating: {len(found.arms)} of {total or '…'}"
        st.html(markup.quiet("hourglass_top", words))
    elif found.state in STATES:
        icon, words = STATES[found.state]
        st.html(markup.quiet(icon, words.format(why=found.refusal)))


def _table(found: FleetSimulation) -> None:
    with st.container(horizontal=True, vertical_alignment="center"):
        st.html(markup.section("Placements and policies", "best figures without failures are marked"))
        name, kind = "cluster.csv", "text/csv"
        data, icon = fleet.csv_text(found.arms), ":material/download:"
        st.download_button("CSV", data, name, kind, "cluster-csv", "All figures.", "ignore", icon=icon)
    least = fleet.best(found.arms)
    heads = {figure: words for figure, words in fleet.HEADS.items() if figure not in fleet.COSTS}
    rows = [
        {"arm": fleet.title(arm)}
        | {heads[figure]: (fleet.cell(figure, arm), least.get(figure) == arm[figure]) for figure in heads}
        for arm in found.arms
    ]
    looks: markup.Looks = {"arm": markup.bold, **dict.fromkeys(heads.values(), _marked)}
    caption = "Figures of each placement and policy"
    st.html(f'<div class="u-log">{markup.table(caption, rows, looks, right=set(heads.values()))}</div>')


def _marked(value: tuple[str, bool]) -> str:
    words, is_best = value
    return f"{markup.faint('best')} {markup.bold(words)}" if is_best else markup.text(words)
