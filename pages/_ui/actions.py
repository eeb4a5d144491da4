"""Actions on runs (pause, stop, submit, download), and the dialog that is open."""

from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal, NamedTuple
from urllib.parse import quote

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from pages._ui import focus, frame, signed_in
from unifiednn_core.base.errors import BadInput, UnifiedNNError
from unifiednn_core.preflight.report import Tell
from unifiednn_core.spec.lifecycle import Event
from unifiednn_core.spec.run import BASELINES
from unifiednn_core.views import markup, wording

BUILD_PAGE, SUBMIT_PAGE, RUN_PAGE, COMPARE_PAGE = (f"pages/{name}.py" for name in ("build", "submit", "run", "compare"))
# The dialog of "Stop" has "Discard", and the cause of a failure has the retries.
BUTTONS = (Event.PAUSE, Event.RESUME, Event.SAVE, Event.STOP)
DialogKind = Literal["stop", "discard", "adjust", "add"]
ButtonLook = Literal["icon", "primary", "secondary"]
DEMO_HELP = (
    "Trains three small networks on handwritten digits as one hybrid, then the same three in plain PyTorch, and "
    "compares. Two to four minutes on two processor cores; the models are done after half a minute."
)
DIALOG, _DIALOGS = "dialog", "dialogs"


class Dialog(NamedTuple):
    """An open dialog about a run, or about one of its sub-models."""

    kind: DialogKind
    run_id: str
    submodel: str | None
    number: int
    """Unique in a session, so that a dialog opened again has fresh widgets."""


def show_error(error: UnifiedNNError) -> None:
    """Show an error: findings one by one, any other as one notice."""
    if isinstance(error, BadInput):
        st.html(markup.findings(error.findings))
    else:
        st.html(markup.notice("red", "error", "Request failed", str(error)))


@contextmanager
def showing_errors() -> Iterator[None]:
    """Show an error that ends the block."""
    try:
        yield
    except UnifiedNNError as error:
        show_error(error)


def state_buttons(
    run_id: str, run_name: str, allowed: Set[Event], submodel: str | None = None, *, look: ButtonLook = "secondary"
) -> None:
    """Draw buttons for what is allowed, in fixed order, in a fragment or in a page.

    Stop opens a dialog; every other action happens at once, and the page is redrawn.
    """
    for event in BUTTONS:
        if event not in allowed:
            continue
        verb, icon = wording.VERBS[event]
        key = f"{event}-{run_id}-{submodel or ''}"
        if look == "icon":
            pressed = icon_button(f"{verb} {wording.plain(submodel or run_name)}", icon, key)
        else:
            pressed = st.button(verb, key=key, icon=f":material/{icon}:", type=look)
        if pressed and event is Event.STOP:
            open_dialog("stop", run_id, submodel)
        elif pressed:
            carry_out(event, run_id, submodel)
        if pressed:
            st.rerun()


def icon_button(label: str, icon: str, key: str, **more: Any) -> bool:
    """Draw a button with an icon alone, in a container that hides its words (its key begins with "icons-")."""
    return st.button(label, key=key, icon=f":material/{icon}:", type="tertiary", help=label, **more)


def carry_out(event: Event, run_id: str, submodel: str | None) -> None:
    """Pause, resume, save, stop or discard; `show_refusals` shows a refusal."""
    attempt(partial(getattr(frame.service().runs, event.value), run_id, submodel))


def attempt(call: Callable[[], object]) -> None:
    """Call the service; `show_refusals` shows a refusal, such as for a state that has changed since the drawing."""
    try:
        call()
    except UnifiedNNError as error:
        st.session_state["refusals"] = [*st.session_state.get("refusals", ()), str(error)]


def demo_button(key: str, look: Literal["primary", "secondary"] = "primary") -> None:
    """Draw the button that submits the demo, with its baselines after it, and opens its run.

    While the demo is prepared, the steps stand in the button's place, so that nothing moves.
    """
    if not signed_in.may("submit"):
        return
    place, icon = st.empty(), ":material/play_circle:"
    if not place.button("Try the demo", key=key, type=look, icon=icon, help=DEMO_HELP):
        return
    _busy(place, "Preparing the samples…")
    try:
        spec = frame.service().library.prepare_samples()
        run_id = frame.service().runs.submit(
            spec, baselines=BASELINES, on_progress=lambda progress: _busy(place, progress.line)
        )
    except UnifiedNNError as error:
        place.empty()
        show_error(error)
        return
    open_run(run_id)


def _busy(place: DeltaGenerator, words: str) -> None:
    """Draw in the place of a button what happens after its press."""
    place.html(f'<span class="u-download u-busy" role="status">{markup.text(words)}</span>', width="content")


def empty_page(
    heading: str, words: str, demo_key: str, look: Literal["primary", "secondary"] = "primary"
) -> DeltaGenerator:
    """Draw the text of an empty page, and the demo's button if it has a key; returns the place of the buttons."""
    st.html(markup.empty(heading, words))
    place = st.container(horizontal=True, horizontal_alignment="center")
    if demo_key:
        with place:
            demo_button(demo_key, look)
    return place


@contextmanager
def checking() -> Iterator[Tell]:
    """Draw a spinner as long as the block runs, and under it what the check does now."""
    with st.spinner("Checking models and data…"):
        place = st.empty()
        yield lambda progress: place.html(markup.faint(progress.line))
    place.empty()


def open_run(run_id: str) -> None:
    """Go to the page of a run; the keyboard goes on there."""
    focus.to(focus.MAIN)
    st.switch_page(RUN_PAGE, query_params={"run": run_id})


def show_refusals() -> None:
    """Show why the last actions were refused, once."""
    for message in st.session_state.pop("refusals", ()):
        st.toast(wording.plain(message), icon=":material/info:")


def open_dialog(kind: DialogKind, run_id: str, submodel: str | None = None) -> None:
    """Open a dialog in the next run of the page, in place of the one that is open."""
    number = st.session_state[_DIALOGS] = st.session_state.get(_DIALOGS, 0) + 1
    st.session_state[DIALOG] = Dialog(kind, run_id, submodel, number)


def close_dialog() -> None:
    """Close the dialog, in the next run of the page."""
    st.session_state.pop(DIALOG, None)


def download_link(label: str, address: str, **looks: Any) -> None:
    """Draw a link to a download, in the look of a button, to an address from `download_address`."""
    st.html(download_html(label, address, **looks), width="content")


def download_html(
    label: str,
    address: str,
    *,
    icon: str = "download",
    tip: str = "",
    primary: bool = False,
    bare: bool = False,
    shown: str = "",
) -> str:
    """The same link as HTML.

    `bare` shows only the icon; screen readers still read the label, also where `shown` stands in its place.
    """
    looks = "u-download" + (" u-primary" if primary else "") + (" u-bare" if bare else "")
    words = f'<span class="{"u-unseen" if bare else ""}">{markup.text(label)}</span>'
    title = f' title="{markup.text(tip)}"' if tip else ""
    if shown:
        words = f'<span class="u-unseen">{markup.text(label)}</span><b aria-hidden="true">{markup.text(shown)}</b>'
    return f'<a class="{looks}" href="{markup.text(address)}" download{title}>{markup.icon(icon)}{words}</a>'


def download_address(kind: str, *names: str) -> str:
    """Path of a download: relative, so that it is valid behind a base path, too."""
    return "/".join(("files", kind, *(quote(name, safe="", errors="surrogatepass") for name in names)))
