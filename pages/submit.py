"""Submit: one network, its data and its hyper-parameters. It trains in hybrids with the networks of others."""

from typing import Any

import streamlit as st

from pages._ui import actions, drafts, frame, launch, run_form, run_lists, signed_in, submodel_form
from unifiednn_core.base.errors import NotFound
from unifiednn_core.spec.lifecycle import ENDED
from unifiednn_core.spec.run import RunSpec
from unifiednn_core.views import markup, wording

_SUBMISSION = "submission"
KEY = "submit"
PROMISE = "It trains in one process with the networks of others, with the same bits as alone."
AUTO = "auto"
_RUN = ("device", "profile")
"""Entries of the run that this page offers."""
DEVICE_HELP = "auto takes whatever device has room first, a GPU before the CPU."
COMMAND = "unifiednn submit spec.json --wait"


def main() -> None:
    """Draw the page; the draft `?draft=ID` holds all entries, so a refresh loses nothing."""
    frame.page("Submit")
    seed = _load()
    head = st.container(horizontal=True, vertical_alignment="center")
    warned = st.container()
    with st.container(border=True, key="submission"):
        entered = submodel_form.submodel_form(seed, (), key=KEY, ranked=signed_in.may("hybrids"))
        run = {
            "device": _device(str(seed.get("device", AUTO))),
            "profile": run_form.profile(str(seed.get("profile", "exact")), key=f"{KEY}-profile"),
        }
    document = _document(entered, run)
    spec, findings = drafts.spec_or_findings(document)
    missing = _missing(entered) or (findings[0].message if findings else "")
    spec = None if missing else spec
    with head:
        st.html(markup.title("Submit a network", markup.note(PROMISE if spec else f"Not ready to submit: {missing}")))
        tip = wording.plain(missing) if missing else None
        icon: Any = ":material/send:"
        pressed = st.button("Submit", key="start", type="primary", icon=icon, disabled=spec is None, help=tip)
    if spec is not None:
        with warned:
            anyway = launch.warnings(spec)
            if pressed or anyway:
                _submit(spec, anyway=anyway)
    launch.check(spec, COMMAND)
    _save({**entered, **run})
    _own()


def _document(entered: drafts.Document, run: drafts.Document) -> drafts.Document:
    return {"name": entered.get("name") or "run", "hybrid": "shared", **run, "submodels": [entered]}


def _missing(entered: drafts.Document) -> str:
    """What is still to be chosen, as a sentence; empty if nothing."""
    wanted = (("model", "Choose or upload a model."), ("train_data", "Choose or upload training data."))
    unapplied = submodel_form.findings_of(entered, (), key=KEY)
    absent = next((words for entry, words in wanted if not entered.get(entry)), "")
    return absent or (unapplied[0].message if unapplied else "")


def _device(known: str) -> str:
    choices = {one.name: f"{one.name} · {one.kind}" for one in frame.service().devices.device_choices()}
    options = list(dict.fromkeys((AUTO, *choices, known)))
    at = options.index(known)
    with st.columns(3)[0]:
        chosen = st.selectbox(
            "Device", options, at, lambda name: wording.plain(choices.get(str(name), str(name))), key=f"{KEY}-device",
            help=DEVICE_HELP,
        )  # fmt: skip
    return str(chosen)


def _load() -> drafts.Document:
    """Entries with which the form begins: those of the draft in the address."""
    draft_id = st.query_params.get("draft")
    held_id, seed, _ = st.session_state.get(_SUBMISSION, (None, {}, {}))
    if _SUBMISSION in st.session_state and held_id == draft_id:
        return dict(seed)
    try:
        document = frame.service().library.draft(draft_id) if draft_id else {}
    except NotFound:
        st.html(markup.notice("orange", "warning", "No such draft", "It was submitted or deleted. This is a new one."))
        draft_id, document = None, {}
        st.query_params.pop("draft", None)
    [seed, *_] = [*drafts.submodels(document), {}]
    seed = {**seed, "device": document.get("device", AUTO), "profile": document.get("profile", "exact")}
    _forget()
    st.session_state[_SUBMISSION] = (draft_id, seed, seed)
    st.session_state.pop(launch.REPORT, None)
    return dict(seed)


def _save(entered: drafts.Document) -> None:
    """Save the draft once a file is chosen, and after each change."""
    draft_id, seed, saved = st.session_state[_SUBMISSION]
    if entered == saved or not (entered.get("model") or entered.get("train_data")):
        return
    run = {entry: entered[entry] for entry in _RUN}
    own = {entry: value for entry, value in entered.items() if entry not in _RUN}
    draft_id = frame.service().library.save_draft(_document(own, run), draft_id)
    st.query_params["draft"] = draft_id
    st.session_state[_SUBMISSION] = (draft_id, seed, entered)


def _submit(spec: RunSpec, *, anyway: bool) -> None:
    """Submit the network and open its own page; if there are warnings, show them first."""
    run_id = launch.start(spec, anyway=anyway)
    if run_id is not None:
        if draft_id := st.query_params.get("draft"):
            frame.service().library.delete_draft(draft_id)
        st.session_state.pop(_SUBMISSION, None)
        _forget()
        actions.open_run(run_id)


def _forget() -> None:
    """Forget what the fields hold: the next form is another one."""
    for entry in [name for name in st.session_state if str(name).startswith(f"{KEY}-")]:
        del st.session_state[entry]


def _own() -> None:
    """What waits or trains already."""
    going = [run for run in frame.service().runs.runs() if run.shared and run.state not in ENDED]
    if going:
        st.html(markup.section("In line and training", wording.count_text(len(going), "submission")))
        run_lists.draw_runs(going, key="going")


if __name__ == "__main__":
    main()
