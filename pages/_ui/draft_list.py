"""Drafts of the viewer: which one a page opens, and the list of them."""

from typing import Literal
from urllib.parse import quote

import streamlit as st

from pages._ui import actions, drafts, frame, signed_in
from unifiednn_core.base.errors import NotFound
from unifiednn_core.views import markup, wording
from unifiednn_core.views.library import DraftView

NEW = "new"
"""In the address, for a draft that is none of those kept."""
SUBMITTED = "That draft was submitted. This is a new one."
GONE = "That draft does not exist. This is a new one."
CONFLICT = (
    "Another tab saved this draft after this tab read it. Your changes here are not saved until you overwrite it."
)
Screen = Literal["build", "submit"]


def load(screen: Screen) -> tuple[str | None, drafts.Document]:
    """The draft that a page opens: that of the address, else the last one; None and no entries for a new one.

    Tells about one that is not there, with a link to the run that it became.
    """
    asked = st.query_params.get("draft") or _last(screen)
    if asked is None or asked == NEW:
        st.query_params.pop("draft", None)
        return None, {}
    library = frame.service().library
    try:
        document = library.draft(asked)
    except NotFound:
        _tell_gone(library.run_of_draft(asked))
        st.query_params.pop("draft", None)
        remember(screen, None)
        return None, {}
    st.query_params["draft"] = asked
    remember(screen, asked)
    return asked, document


def remember(screen: Screen, draft_id: str | None) -> None:
    """Let the page open this draft when it is visited again; None for a new one."""
    st.session_state[_key(screen)] = draft_id or NEW


def finish(screen: Screen, draft_id: str | None, run_id: str) -> None:
    """Forget a draft that was submitted, but for the run that it became."""
    if draft_id:
        frame.service().library.finish_draft(draft_id, run_id)
    remember(screen, None)


def draw(*, key: str, without: str | None = None, screen: Screen | None = None) -> None:
    """Draw one line for each draft, of one page alone if that is given, except the one that is open; nothing for none.

    Call it outside of fragments.
    """
    if not signed_in.may("drafts"):
        return
    listed = [
        one for one in frame.service().library.drafts() if one.draft_id != without and screen in (None, _screen(one))
    ]
    if not listed:
        return
    st.html(markup.section("Drafts", "not started yet"))
    with st.container(key=f"rows-drafts-{key}"):
        for one in listed:
            _row(one, key)


def link(screen: Screen, words: str, draft_id: str) -> None:
    """Draw a link to a draft, in the look of a button. It reloads the page, so that fields hold the draft's values."""
    address = f"{screen}?draft={quote(draft_id)}"
    st.html(f'<a class="u-download" href="{address}" target="_self">{markup.text(words)}</a>', width="content")


def conflict(screen: Screen, draft_id: str) -> bool:
    """Tell that another tab has changed the draft; returns whether the viewer overwrites it."""
    st.html(markup.notice("orange", "tab", "Changed in another tab", CONFLICT))
    with st.container(horizontal=True):
        overwrites = st.button("Overwrite", key="conflict-overwrite", icon=":material/save:")
        link(screen, "Load the other version", draft_id)
    return overwrites


def go(draft_id: str) -> None:
    """Open a draft on its page."""
    shared = frame.service().library.draft(draft_id).get("hybrid") == "shared"
    st.switch_page(actions.SUBMIT_PAGE if shared else actions.BUILD_PAGE, query_params={"draft": draft_id})


def _row(one: DraftView, key: str) -> None:
    page = _screen(one)
    with st.container(horizontal=True, vertical_alignment="center", key=f"row-draft-{key}-{one.draft_id}"):
        # A link reloads the page, so that its fields hold the values of this draft.
        address = f"{page}?draft={quote(one.draft_id)}"
        link = f'<a class="u-clip" href="{address}" target="_self" title="{markup.text(f"Open {one.name}")}"><b>'
        count = wording.count_text(one.submodels, "sub-model")
        cells = (f"{link}{markup.text(one.name)}</b></a>", count, markup.faint(frame.ago(one.changed_at_s)))
        st.html(markup.cells("u-brief u-draft", cells))
        with st.popover("Delete", type="tertiary", key=f"draft-delete-{key}-{one.draft_id}"):
            st.html(markup.small("Its entries are lost; files stay in the library."))
            label = f"Delete draft {wording.plain(one.name)}"
            if st.button(label, key=f"draft-gone-{key}-{one.draft_id}", icon=":material/delete:"):
                frame.service().library.delete_draft(one.draft_id)
                st.rerun()


def _screen(one: DraftView) -> Screen:
    return "submit" if one.shared else "build"


def _key(screen: Screen) -> str:
    return f"last-draft-{screen}"


def _last(screen: Screen) -> str | None:
    """The draft that this session had open last, else the newest one."""
    held = st.session_state.get(_key(screen))
    if held is not None:
        return str(held)
    newest = (one.draft_id for one in frame.service().library.drafts() if _screen(one) == screen)
    return next(newest, None)


def _tell_gone(run_id: str | None) -> None:
    if run_id is None:
        st.html(markup.notice("orange", "warning", "No such draft", GONE))
        return
    with st.container(key="panel-became"):
        st.html(markup.notice("blue", "check", "No such draft", SUBMITTED))
        st.page_link(actions.RUN_PAGE, label="Open its run", query_params={"run": run_id})
