"""Findings with a button for each that can be mended by one press."""

from collections.abc import Iterable
from math import inf

import streamlit as st

from pages._ui import actions, drafts, frame
from unifiednn_core.base.errors import Finding, UnifiedNNError
from unifiednn_core.views import markup


def draw(findings: Iterable[Finding], document: drafts.Document, *, key: str) -> drafts.Document | None:
    """Draw findings, errors first; returns the draft as a button that was pressed changes it, None without one."""
    changed = None
    for at, one in enumerate(sorted(findings, key=lambda one: one.severity != "error")):
        html = markup.findings([one])
        if one.fix is None or drafts.entry_at(document, one.field) is None:
            st.html(html)
            continue
        with st.container(key=f"panel-fix-{one.severity}-{key}-{at}"):
            st.html(html)
            if st.button(one.fix.label, key=f"fix-{key}-{at}-{one.fix.label}", icon=":material/build:"):
                changed = mended(document, one)
    return changed


def mended(document: drafts.Document, finding: Finding) -> drafts.Document | None:
    """The draft with a finding's fix; None if it is refused, which is then shown."""
    if finding.fix is None or finding.fix.verb != "split":
        return drafts.fixed(document, finding)
    found = drafts.entry_at(document, finding.field)
    submodel = {} if found is None else found[0]
    try:
        parts = parts_of(str(submodel.get("train_data")), float(finding.fix.value))
    except UnifiedNNError as error:
        actions.show_error(error)
        return None
    return drafts.with_data(document, finding.field, parts) if parts else None


def parts_of(reference: str, test_share: float, most_bytes: float = inf) -> dict[str, str]:
    """Split a data set of the library, by class where there are classes; returns what a sub-model says of the parts.

    Nothing is written, and nothing said, of one that the library does not have or that is too large.
    Raises `UnifiedNNError`.
    """
    library = frame.service().library
    whole = next((one for one in library.files() if drafts.reference(one) == reference), None)
    if whole is None or whole.size_bytes > most_bytes:
        return {}
    by_class = whole.facts.get("classes") is not None and not whole.facts.get("target_shape")
    with st.spinner("Writing the two parts…"):
        train, test = library.split_data(whole.sha256, test_share=test_share, by_class=by_class)
    return {"train_data": drafts.reference(train), "test_data": drafts.reference(test)}
