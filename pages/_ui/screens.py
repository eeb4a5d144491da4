"""Which screens there are, under which addresses."""

import streamlit as st
from streamlit.navigation.page import Page

_ROUTED = "routed"


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
    # Icons stand in the titles: as icons of their own the browser would fetch them from the internet for its tab.
    return st.navigation(
        [
            st.Page("pages/now.py", title=":material/sensors: Now", url_path="now", default=True),
            st.Page("pages/build.py", title=":material/account_tree: Build", url_path="build"),
            st.Page("pages/run.py", title=":material/monitoring: Run", url_path="run"),
            st.Page("pages/compare.py", title=":material/balance: Compare", url_path="compare"),
            st.Page("pages/library.py", title=":material/inventory_2: Library", url_path="library"),
        ]
    )
