"""What a person does to runs: pause, resume, save, stop (asked once more), retry, try the demo, submit."""

from collections.abc import Callable, Sequence, Set

import streamlit as st

from pages._ui import dialogs, frame, markup, signed_in, wording
from unifiednn_core.errors import BadInput, Finding, UnifiedNNError
from unifiednn_core.lifecycle import Event
from unifiednn_core.spec import RunSpec
from unifiednn_core.views.comparison import Mode

NOW_PAGE, BUILD_PAGE, RUN_PAGE, COMPARE_PAGE, LIBRARY_PAGE = (
    f"pages/{name}.py" for name in ("now", "build", "run", "compare", "library")
)
# Discarding stands behind "Stop", and retries beside the cause of the failure.
BUTTONS = (Event.PAUSE, Event.RESUME, Event.SAVE, Event.STOP)


def show_error(error: UnifiedNNError) -> None:
    """Show what went wrong: findings one by one, anything else as one notice."""
    if isinstance(error, BadInput):
        st.html(markup.findings(error.findings))
    else:
        st.html(markup.notice("red", "error", "That did not work", str(error)))


def state_buttons(
    run_id: str,
    run_name: str,
    allowed: Set[Event],
    submodel: str | None = None,
    *,
    icons: bool = False,
    primary: bool = False,
) -> None:
    """Buttons for what is allowed, in fixed order. Called in a fragment or in a page.

    `icons` draws them small, for a container that hides their words (its key begins with "icons-").
    A stop opens the dialog of `stop_dialog`; everything else is done at once, and the screen redrawn.
    """
    for event in BUTTONS:
        if event not in allowed:
            continue
        verb, icon = wording.VERBS[event]
        label = f"{verb} {wording.plain(submodel or run_name)}" if icons else verb
        key = f"{event}-{run_id}-{submodel or ''}"
        if not st.button(
            label,
            icon=f":material/{icon}:",
            key=key,
            help=label if icons else None,
            type="tertiary" if icons else "primary" if primary else "secondary",
        ):
            continue
        if event is Event.STOP:
            dialogs.ask("stop", run_id, submodel)
        else:
            carry_out(event, run_id, submodel)
        st.rerun()


def carry_out(event: Event, run_id: str, submodel: str | None) -> None:
    """Ask the service for it; a refusal is shown by `show_refusals`."""
    service = frame.service()
    calls = {
        Event.PAUSE: service.pause,
        Event.RESUME: service.resume,
        Event.SAVE: service.save,
        Event.STOP: service.stop,
        Event.DISCARD: service.discard,
    }
    attempt(lambda: calls[event](run_id, submodel))


def attempt(call: Callable[[], object]) -> None:
    """Make a call of the service; a refusal, because the state moved on since the drawing, is shown afterwards."""
    try:
        call()
    except UnifiedNNError as error:
        st.session_state["refusals"] = [*st.session_state.get("refusals", ()), str(error)]


def demo_button(key: str, *, primary: bool, baselines: Sequence[Mode] = ()) -> None:
    """Button that prepares the samples, submits the demo, with baselines after it, and goes to its run."""
    if not signed_in.may("submit"):
        return
    if st.button(
        "Try the demo with its baselines" if baselines else "Try the demo",
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
        run_id = try_submit(spec, baselines)
        if run_id is not None:
            open_run(run_id)


def try_submit(
    spec: RunSpec,
    baselines: Sequence[Mode] = (),
    *,
    baselines_first: bool = False,
    told: Callable[[Sequence[Finding]], object] | None = None,
) -> str | None:
    """Hand a run in and return its id; shows the findings, and returns None, where it is refused.

    `told` is given the warnings before, and raises `BadInput` where they are to be looked at first.
    """
    try:
        with st.spinner("Checking models and data…"):
            return frame.service().submit(spec, baselines=baselines, baselines_first=baselines_first, told=told)
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
