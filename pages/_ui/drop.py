"""A place on Build for many files at once: models, data, a spec, hyper-parameters."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import streamlit as st

from pages._ui import actions, background, frame, import_form, uploads
from unifiednn_core.base.errors import BadInput, UnifiedNNError
from unifiednn_core.data.values import AS_STORED
from unifiednn_core.views import wording
from unifiednn_core.views.runs import FileView


class Dropped(NamedTuple):
    """One file that arrived: a file of the library, or what a JSON file says."""

    filename: str
    file: FileView | None
    document: dict[str, Any] | None


@dataclass(slots=True)
class _Batch:
    """Files of one place, from the first one that arrives until all are read."""

    seen: set[str] = field(default_factory=set)
    reading: dict[str, background.Underway[Dropped]] = field(default_factory=dict)
    """By the id of their uploads."""
    refused: list[UnifiedNNError] = field(default_factory=list)


def draw(*, key: str) -> list[Dropped]:
    """Draw the place; returns what was dropped, once, when all of it is read."""
    sent, on_their_way = uploads.sent_batch("Drop models, data, a spec.json or Net.json", key=key)
    batch: _Batch = st.session_state.setdefault(f"{key}-batch", _Batch())
    if new := [one for one in sent if one not in batch.seen]:
        batch.refused.clear()
        batch.seen.update(new)
        batch.reading |= {one: _begun(one) for one in new}
        background.end_within([*batch.reading.values()], uploads.GRACE_S)
    for error in batch.refused:
        shown = BadInput(import_form.in_words(error.findings)) if isinstance(error, BadInput) else error
        actions.show_error(shown)
    waiting = next((one for one in batch.reading.values() if not one.done), None)
    if waiting is not None:
        background.draw(waiting, "The server reads the files. Everything else goes on.")
    if waiting is not None or on_their_way or not batch.reading:
        return []
    found = []
    place = {one: at for at, one in enumerate(sent)}  # empty if the page was left meanwhile
    for one in sorted(batch.reading, key=lambda one: place.get(one, len(place))):  # as they were chosen
        try:
            found.append(batch.reading[one].result())
        except UnifiedNNError as error:
            batch.refused.append(error)
    batch.reading = {}
    if found:
        names = ", ".join(wording.plain(one.filename) for one in found)
        st.toast(f"Imported {names}.", icon=":material/check:")
    elif batch.refused:
        st.rerun()
    return found


def _begun(upload_id: str) -> background.Underway[Dropped]:
    library = frame.service().library

    def take() -> Dropped:
        filename, document = library.upload(upload_id).filename, library.document_in(upload_id)
        if document is None:
            return Dropped(filename, library.finish_upload(upload_id, AS_STORED), None)
        library.drop_upload(upload_id)
        return Dropped(filename, None, document)

    return background.Underway.of(take)
