"""What a person does to runs: pause, resume, stop (asked once more), try the demo, submit."""

from collections.abc import Iterable

import streamlit as st

from pages._ui import frame, markup, wording
from unifiednn_core.errors import BadInput, UnifiedNNError
from unifiednn_core.lifecycle import Event, State, actions
from unifiednn_core.spec import RunSpec

RUN_PAGE, BUILD_PAGE, LIBRARY_PAGE, NOW_PAGE = "pages/run.py", "pages/build.py", "pages/library.py", "pages/now.py"
_STOPPING = "stop_asked_for"  # (run id, run name, sub-model or None) while the dialog is open


def show_error(error: UnifiedNNError) -> None:
    """Show what went wrong: findings one by one, anything else as one notice."""
    if isinstance(error, BadInput):
        st.html(markup.findings(error.findings))
    else:
        st.html(markup.notice("red", "error", "That did not work", str(error)))


def state_buttons(
    run_id: str, run_name: str, state: State, submodel: str | None = None, *, icons: bool = False
) -> None:
    """Buttons that this state allows, in fixed order. Called in a fragment or in a page.

    `icons` draws them small, for a container that hides their words (its key begins with "icons-").
    A stop opens the dialog of `stop_dialog`; everything else is done at once, and the screen redrawn.
    """
    allowed = actions(state)
    for event, (verb, icon) in wording.VERBS.items():
        if event not in allowed:
            continue
        label = f"{verb} {wording.plain(submodel or run_name)}" if icons else verb
        key = f"{event}-{run_id}-{submodel or ''}"
        if not st.button(
            label,
            icon=f":material/{icon}:",
            key=key,
            help=label if icons else None,
            type="tertiary" if icons else "secondary",
        ):
            continue
        if event is Event.STOP:
            st.session_state[_STOPPING] = (run_id, run_name, submodel)
        else:
            _carry_out(event, run_id, submodel)
        st.rerun()


def stop_dialog() -> None:
    """Open the question whether to stop, if it was asked for. Call it once, in the body of the page.

    It stands outside the ticking fragment because a tick would close a dialog of its own.
    """
    wanted = st.session_state.get(_STOPPING)
    if wanted is None:
        return
    run_id, run_name, submodel = wanted
    what = submodel or run_name
    survives = wording.STOP_SUBMODEL if submodel else wording.STOP_RUN

    @st.dialog("Stop training?", on_dismiss=_forget_stop)
    def ask() -> None:
        st.html(f"<p>{markup.bold(what)}: {markup.text(survives)}</p>")
        with st.container(horizontal=True, horizontal_alignment="right"):
            if st.button("Keep training", key="stop-no"):
                _forget_stop()
                st.rerun()
            if st.button("Stop and keep results", key="stop-yes", type="primary", icon=":material/stop:"):
                _forget_stop()
                _carry_out(Event.STOP, run_id, submodel)
                st.rerun()

    ask()


def demo_button(key: str, *, primary: bool) -> None:
    """Button that prepares the samples, submits the demo and goes to its run."""
    if st.button(
        "Try the demo",
        key=key,
        type="primary" if primary else "secondary",
        icon=":material/play_circle:",
        help=wording.DEMO_HELP,
    ):
        try:
            with st.spinner("Preparing the samples. The first time takes some seconds."):
                spec = frame.service().prepare_samples()
        except UnifiedNNError as error:
            show_error(error)
            return
        run_id = try_submit(spec)
        if run_id is not None:
            open_run(run_id)


def try_submit(spec: RunSpec) -> str | None:
    """Hand a run in and return its id; shows the findings, and returns None, where it is refused."""
    try:
        with st.spinner("Checking models and data…"):
            return frame.service().submit(spec)
    except UnifiedNNError as error:
        show_error(error)
        return None


def open_run(run_id: str) -> None:
    """Go to the page of a run."""
    st.switch_page(RUN_PAGE, query_params={"run": run_id})


def show_refusals() -> None:
    """Show what the last action was refused for, once."""
    for message in st.session_state.pop("refusals", ()):
        st.toast(wording.plain(message), icon=":material/info:")


def _carry_out(event: Event, run_id: str, submodel: str | None) -> None:
    service = frame.service()
    calls = {Event.PAUSE: service.pause, Event.RESUME: service.resume, Event.STOP: service.stop}
    try:
        calls[event](run_id, submodel)
    except UnifiedNNError as error:  # the state moved on between the drawing of the button and the click
        _refuse([str(error)])


def _refuse(messages: Iterable[str]) -> None:
    st.session_state["refusals"] = [*st.session_state.get("refusals", ()), *messages]


def _forget_stop() -> None:
    st.session_state.pop(_STOPPING, None)
