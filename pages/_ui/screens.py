"""Which screens there are, under which addresses."""

import streamlit as st
from streamlit.navigation.page import Page

from pages._ui import signed_in

_ROUTED = "routed"
SCREENS = (
    ("Now", "sensors"),
    ("Build", "account_tree"),
    ("Run", "monitoring"),
    ("Compare", "balance"),
    ("Library", "inventory_2"),
)
PEOPLE = ("People", "group")
"""The screen that there is where people sign in."""


def route() -> None:
    """Run the screen that the address names."""
    st.session_state[_ROUTED] = True
    _navigation().run()


def ensure_routed() -> None:
    """Run once more, through the router, where Streamlit ran a page without it.

    It finds the folder pages/ by itself, and until somebody has been at app.py it runs the page of a visitor's
    address alone. Declaring the screens ends that for the whole server. Done once a session, so that a page which
    is run alone on purpose, as tests do, keeps the click that it was run for.
    """
    if not st.session_state.get(_ROUTED):
        st.session_state[_ROUTED] = True
        _navigation()
        st.rerun()


def _navigation() -> Page:
    person = signed_in.actor()
    pages = [
        _page(*screen, hidden=person is not None and not signed_in.may_see(person, screen[0])) for screen in SCREENS
    ]
    if person is not None:
        pages.append(_page(*PEOPLE, hidden=not signed_in.may_see(person, PEOPLE[0])))
    nobody = signed_in.login_configured() and person is None
    return st.navigation(pages, position="hidden" if nobody else "sidebar")


def _page(title: str, icon: str, *, hidden: bool) -> Page:
    # Icons stand in the titles: as icons of their own the browser would fetch them from the internet for its tab.
    name = title.lower()
    return st.Page(
        f"pages/{name}.py",
        title=f":material/{icon}: {title}",
        url_path=name,
        default=name == "now",
        visibility="hidden" if hidden else "visible",
    )
