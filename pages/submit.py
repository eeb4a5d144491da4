"""Submit: one network, its data and its hyper-parameters. It trains in hybrids with the networks of others."""

from typing import Any

import streamlit as st

from pages._ui import actions, draft_list, drafts, frame, launch, run_form, run_lists, signed_in, submodel_form
from unifiednn_core.base.errors import NotFound
from unifiednn_core.spec.lifecycle import ENDED
from unifiednn_core.spec.run import RunSpec
from unifiednn_core.views import markup, wording

_SUBMISSION, _CONFLICT = "submission", "submission-conflict"
KEY = "submit"
_NUMBER = "submission-number"
"""Entry with the number of the form: a fresh one gives fresh fields."""
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
    key = _key()
    head = st.container(horizontal=True, vertical_alignment="center")
    warned = st.container()
    with st.container(border=True, key="submission"):
        entered = submodel_form.submodel_form(seed, (), key=key, ranked=signed_in.may("hybrids"))
        run = {
            "device": _device(str(seed.get("device", AUTO))),
            "profile": run_form.profile(str(seed.get("profile", "exact")), key=f"{key}-profile"),
        }
    if _CONFLICT in st.session_state:
        with warned:
            _conflict({**entered, **run})
    document = _document(entered, run)
    spec, findings = drafts.spec_or_findings(document)
    missing = _missing(entered) or (findings[0].message if findings else "")
    spec = None if missing else spec
    with head:
        st.html(markup.title("Submit a network", markup.note(PROMISE if spec else f"Not ready to submit: {missing}")))
        tip = wording.plain(missing) if missing else None
        icon: Any = ":material/send:"
        if st.session_state[_SUBMISSION][0]:
            draft_list.link("submit", "New draft", draft_list.NEW)
        pressed = st.button("Submit", key="start", type="primary", icon=icon, disabled=spec is None, help=tip)
    mended = None
    if spec is not None:
        with warned:
            anyway, mended = launch.told(spec, document)
            if pressed or anyway:
                _submit(spec, anyway=anyway)
    mended = launch.check(spec, document, COMMAND) or mended
    _save({**entered, **run})
    if mended is not None:
        _mend(mended)
    draft_list.draw(key="submit", without=st.session_state[_SUBMISSION][0], screen="submit")
    _own()


def _document(entered: drafts.Document, run: drafts.Document) -> drafts.Document:
    return {"name": entered.get("name") or "run", "hybrid": "shared", **run, "submodels": [entered]}


def _missing(entered: drafts.Document) -> str:
    """What is still to be chosen, as a sentence; empty if nothing."""
    wanted = (("model", "Choose or upload a model."), ("train_data", "Choose or upload training data."))
    unapplied = submodel_form.findings_of(entered, (), key=_key())
    absent = next((words for entry, words in wanted if not entered.get(entry)), "")
    return absent or (unapplied[0].message if unapplied else "")


def _device(known: str) -> str:
    choices = {one.name: f"{one.name} · {one.kind}" for one in frame.service().devices.device_choices()}
    options = list(dict.fromkeys((AUTO, *choices, known)))
    at = options.index(known)
    with st.columns(3)[0]:
        chosen = st.selectbox(
            "Device",
            options,
            at,
            lambda name: wording.plain(choices.get(str(name), str(name))),
            key=f"{_key()}-device",
            help=DEVICE_HELP,
        )
    return str(chosen)


def _load() -> drafts.Document:
    """Entries with which the form begins: those of the draft in the address, else of the last one."""
    held_id, seed, *_ = st.session_state.get(_SUBMISSION, (None, {}))
    # A field that is always drawn: without its value, another page was drawn in between.
    stays = f"{_key()}-deadline" in st.session_state or _CONFLICT in st.session_state
    if _SUBMISSION in st.session_state and stays and held_id == st.query_params.get("draft"):
        return dict(seed)
    draft_id, document = draft_list.load("submit")
    [seed, *_] = [*drafts.submodels(document), {}]
    seed = {**seed, "device": document.get("device", AUTO), "profile": document.get("profile", "exact")}
    submodel_form.restart(_key())
    st.session_state[_SUBMISSION] = (draft_id, seed, seed, drafts.revision(document))
    for entry in (launch.REPORT, _CONFLICT):
        st.session_state.pop(entry, None)
    return dict(seed)


def _save(entered: drafts.Document) -> None:
    """Save the draft once a file is chosen, and after each change; ask first if another tab has changed it since."""
    draft_id, seed, saved, revision = st.session_state[_SUBMISSION]
    if entered == saved or not (entered.get("model") or entered.get("train_data")) or _CONFLICT in st.session_state:
        return
    library = frame.service().library
    try:
        others = draft_id and drafts.revision(library.draft(draft_id)) != revision
    except NotFound:  # submitted or deleted; it is saved again with these entries
        others = False
    if others:
        st.session_state[_CONFLICT] = True
        st.rerun()
    whole = _whole(entered)
    st.query_params["draft"] = draft_id = library.save_draft(whole, draft_id)
    draft_list.remember("submit", draft_id)
    st.session_state[_SUBMISSION] = (draft_id, seed, entered, drafts.revision(whole))


def _mend(document: drafts.Document) -> None:
    """Save the draft with a fix, and let the form begin anew with it."""
    draft_id, *_ = st.session_state.pop(_SUBMISSION)
    st.query_params["draft"] = frame.service().library.save_draft(document, draft_id)
    st.session_state[_NUMBER] = st.session_state.get(_NUMBER, 0) + 1
    st.rerun()


def _key() -> str:
    return f"{KEY}{st.session_state.get(_NUMBER, 0)}"


def _whole(entered: drafts.Document) -> drafts.Document:
    run = {entry: entered[entry] for entry in _RUN}
    return _document({entry: value for entry, value in entered.items() if entry not in _RUN}, run)


def _conflict(entered: drafts.Document) -> None:
    draft_id, seed, *_ = st.session_state[_SUBMISSION]
    if draft_list.conflict("submit", draft_id):
        del st.session_state[_CONFLICT]
        frame.service().library.save_draft(whole := _whole(entered), draft_id)
        st.session_state[_SUBMISSION] = (draft_id, seed, entered, drafts.revision(whole))
        st.rerun()


def _submit(spec: RunSpec, *, anyway: bool) -> None:
    """Submit the network and open its own page; if there are warnings, show them first."""
    run_id = launch.start(spec, anyway=anyway)
    if run_id is not None:
        draft_list.finish("submit", st.session_state[_SUBMISSION][0], run_id)
        st.session_state.pop(_SUBMISSION, None)
        submodel_form.restart(_key())
        actions.open_run(run_id)


def _own() -> None:
    """What waits or trains already."""
    going = [run for run in frame.service().runs.current() if run.shared and run.state not in ENDED]
    if going:
        st.html(markup.section("Queued and training", wording.count_text(len(going), "submission")))
        run_lists.draw_runs(going, key="going")


if __name__ == "__main__":
    main()
