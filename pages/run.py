"""Run: one hybrid or baseline, during and after its training. `?run=ID` names it; without an id, a list of runs."""

import math
from functools import partial

import streamlit as st

from pages._ui import actions, arms, banners, charts, dialogs, frame, run_details, run_lists, submodels
from unifiednn_core.base.errors import NotFound
from unifiednn_core.base.units import NOT_AVAILABLE, duration_text, memory_text, percent_text
from unifiednn_core.spec.lifecycle import ENDED, State
from unifiednn_core.views import markup, wording
from unifiednn_core.views.comparison import Comparison
from unifiednn_core.views.report import cards
from unifiednn_core.views.runs import RunView
from unifiednn_core.views.sweeps import sweep_rows

SHARES = "trained in one process with the networks of others, with the same bits as alone"


def main() -> None:
    """Draw the run; every second while it or one of its baselines is active."""
    frame.page("Run")
    run_id = st.query_params.get("run")
    try:
        view = frame.service().runs.observe(run_id) if run_id else None
    except NotFound:
        view = None
        st.html(markup.notice("red", "error", "No such run", f"There is no run '{run_id}'.", "Choose one below."))
    dialogs.draw_all()
    if run_id is None or view is None:
        frame.live(_choose, arms.any_lives(frame.service().runs.runs()), idle_s=frame.IDLE_PERIOD_S)
        return
    st.query_params["run"] = run_id  # a link from this page to itself leaves the address unchanged
    frame.live(partial(draw, run_id), _lives(view))


def draw(run_id: str, live: bool) -> None:
    """Draw everything that moves; `live` says whether the run or a baseline was active when the page was drawn."""
    view = arms.fitting(frame.service().runs.observe(run_id))
    if _lives(view) != live:
        st.rerun()  # with the other period
    actions.show_refusals()
    _head(view, live)
    banners.draw(view)
    baseline = arms.is_baseline(view)
    equal = () if baseline else arms.comparable(run_id)
    found = arms.newest(equal)
    comparison = arms.comparison(run_id) if found and view.state in ENDED else None
    st.html(markup.strip(_facts(view, comparison)))
    shown = False if baseline else arms.draw_row(view, found)
    if comparison is not None and (verdicts := cards.given(comparison)):
        st.html(verdicts)
    charts.of_run(view, arms.with_curves(equal) if shown else ())
    _section(view)
    submodels.draw_table(view)
    _sweeps(view)
    run_details.draw(view)


def _lives(view: RunView) -> bool:
    return view.state not in ENDED or arms.any_lives(arms.comparable(view.run_id))


def _choose(live: bool) -> None:
    runs = frame.service().runs.runs()
    if arms.any_lives(runs) != live:
        st.rerun()  # with the other period
    actions.show_refusals()
    st.html(markup.title("Run", markup.note(f"Choose a run. · data as of {frame.clock()}")))
    if not runs:
        actions.empty_page("No runs yet", wording.NO_RUNS, "demo-choose")
        return
    run_lists.draw_runs(runs, key="choose")


def _head(view: RunView, live: bool) -> None:
    with st.container(horizontal=True, vertical_alignment="center"):
        rhythm = "live" if live else "no longer updated"
        beside = f"{arms.way_text(view)} · data as of {frame.clock()}, {rhythm}"
        badges = (arms.badge(view), markup.state_badge(view.state))
        st.html(markup.title(view.name, *badges, markup.note(beside)))
        # The banner of an interrupted run explains the resume and has its button.
        actions.state_buttons(view.run_id, view.name, view.actions - banners.own_actions(view))
        if arms.is_baseline(view):
            if st.button("Compare", key="open-compare", icon=":material/balance:"):
                st.switch_page(actions.COMPARE_PAGE, query_params={"run": view.run_id})
        elif dialogs.is_open(view) and st.button("Adjust", key="adjust", icon=":material/tune:"):
            actions.open_dialog("adjust", view.run_id)
            st.rerun()
        if st.button("All runs", key="all-runs", icon=":material/list:", type="tertiary"):
            st.query_params.pop("run", None)
            st.rerun()


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
        count = wording.count_text(len(rows), "member")
        st.html(markup.section(f"Sweep {sweep}", f"{count}, best first"))
        st.html(markup.table(f"Sweep {sweep}", markup.frame(rows), looks))


def _facts(view: RunView, comparison: Comparison | None) -> list[markup.Fact]:
    done, total = sum(s.steps_done for s in view.submodels), sum(s.steps_total for s in view.submodels)
    completed = sum(s.state is State.COMPLETED for s in view.submodels)
    last_bytes = next((int(size) for size in reversed(view.memory.y) if math.isfinite(size)), None)
    threads = "" if view.threads is None else wording.count_text(view.threads, "thread")
    steps = f"{markup.bar(view.progress, 'Progress of the run')}{done:,} of {total:,} steps"
    counts = f"{completed} of {len(view.submodels)} sub-models completed{_against(comparison, 'makespan')}"
    memory = "Last memory" if view.state in ENDED or view.state is State.PAUSED else "Memory"
    elapsed = "-" if view.elapsed_s is None else duration_text(view.elapsed_s)
    peak = markup.text(_peak_text(view)) + _against(comparison, "memory")
    if view.shared:
        memory, peak = "Own memory", "its own part of the process"
        last_bytes = next((int(size) for size in reversed(view.breakdown.total_bytes) if size is not None), None)
    return [
        markup.Fact("Progress", percent_text(view.progress), steps),
        markup.Fact("Elapsed" if view.makespan_s is None else "Makespan", elapsed, counts),
        _who(view),
        *([_when(view)] if view.shared and view.state not in ENDED else []),
        markup.Fact(memory, memory_text(last_bytes), peak),
        markup.Fact(
            "Device", markup.text(wording.device_text(view.device)), markup.text(_devices_text(view) or threads)
        ),
    ]


def _when(view: RunView) -> markup.Fact:
    """Place in line, and when it starts and ends."""
    if view.state is State.QUEUED and view.queue_position:
        when = frame.estimate(view.starts_in_s, view.ends_in_s) or wording.NO_ESTIMATE
        return markup.Fact("In line", f"number {view.queue_position}", markup.text(when))
    if view.ends_in_s is None:
        return markup.Fact("Ends", "-", wording.ESTIMATING)
    return markup.Fact("Ends", frame.clock_at(view.ends_in_s), f"in {wording.range_text(view.ends_in_s)}")


def _devices_text(view: RunView) -> str:
    """Devices on which it trained, if it has moved."""
    devices = list(dict.fromkeys(stay.device for stay in view.stays))
    return f"trained on {', then '.join(devices)}" if len(devices) > 1 else ""


def _who(view: RunView) -> markup.Fact:
    if view.state in ENDED:
        sentence = markup.text(wording.STATES[view.state].sentence)
        return markup.Fact("Ended", frame.ago(view.ended_at_s), sentence, wide=True)
    now = [markup.signed_name(part.number, part.name) for part in view.submodels if part.holds_device]
    names = ", ".join(now) or markup.faint("none")
    return markup.Fact("Trains now", names, markup.text(view.now_reason or "") if now else "", wide=True)


def _peak_text(view: RunView) -> str:
    predicted = f", predicted {memory_text(view.prediction.peak_bytes)}" if view.prediction else ""
    return f"peak {memory_text(view.peak_memory_bytes)}{predicted} · {view.memory_source or NOT_AVAILABLE}"


def _against(comparison: Comparison | None, quantity: str) -> str:
    text = arms.difference_text(comparison, f"{quantity}_ratio")
    return f"<br>{markup.text(text)}" if text else ""


if __name__ == "__main__":
    main()
