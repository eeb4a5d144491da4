"""New drafts that start from a file of the library, or from what a run has kept."""

from collections.abc import Callable
from typing import Literal

import streamlit as st

from pages._ui import actions, drafts, frame
from unifiednn_core.base.errors import NotFound, UnifiedNNError
from unifiednn_core.views.library import Origin, ShelvedFile
from unifiednn_core.views.runs import FileView


def with_file(held: ShelvedFile) -> None:
    """Open a new draft that has this file: as a model, as data, or as the start of a training."""
    _open(lambda: _draft(held.file, held.origin))


def with_kept(run_id: str, submodel: str, what: Literal["model", "checkpoint"]) -> None:
    """Copy what a run has kept into the library, and open a new draft that starts from it."""

    def made() -> str:
        with st.spinner("Reading the file…"):
            file = frame.service().library.take(run_id, submodel, what)
        return _draft(file, Origin(run_id=run_id, run_name="", submodel=submodel, what=what))

    _open(made)


def _open(make: Callable[[], str]) -> None:
    try:
        draft_id = make()
    except UnifiedNNError as error:
        actions.show_error(error)
        return
    st.switch_page(actions.BUILD_PAGE, query_params={"draft": draft_id})


def _draft(file: FileView, origin: Origin | None) -> str:
    library = frame.service().library
    if origin is not None:  # with the data and hyper-parameters of the training that it is from
        try:
            draft_id = library.clone_run(origin.run_id, origin.submodel)
        except NotFound:  # that run was deleted
            pass
        else:
            document = library.draft(draft_id)
            [part] = drafts.submodels(document)
            return library.save_draft(drafts.put(document, 0, part | _entries(file)), draft_id)
    name = drafts.free_name(str(file.facts.get("submodel") or file.filename), [])
    return library.save_draft(drafts.put(drafts.new(), None, {"name": name} | _entries(file)))


def _entries(file: FileView) -> drafts.Document:
    """Entries of a sub-model that name this file."""
    reference = drafts.reference(file)
    if file.kind == "checkpoint":
        return {"start_from": {"file": reference}}
    return {"train_data" if file.kind == "data" else "model": reference}
