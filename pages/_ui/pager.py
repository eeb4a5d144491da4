"""Which lines of a long list are shown, with buttons to newer and older ones."""

import streamlit as st

from unifiednn_core.views import markup


def page_of(key: str) -> int:
    """The page that the viewer turned to, from 0; its list may have become shorter."""
    return int(st.session_state.get(f"{key}-page", 0))


def restart(key: str) -> None:
    """Show the first page next time."""
    st.session_state.pop(f"{key}-page", None)


def draw(page: int, total: int, size: int, *, key: str) -> None:
    """Draw the place in a list of `total` lines, `size` on a page; nothing if one page holds them all."""
    last = max(0, (total - 1) // size)
    if not last:
        return
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="right", key=f"{key}-pager"):
        first, end = page * size + 1, min(total, page * size + size)
        st.html(markup.small(f"{first} to {end} of {total}"), width="content")
        back = st.button("Newer", key=f"{key}-newer", icon=":material/chevron_left:", disabled=page <= 0)
        on = st.button("Older", key=f"{key}-older", icon=":material/chevron_right:", disabled=page >= last)
    if back or on:
        st.session_state[f"{key}-page"] = page + (1 if on else -1)
        st.rerun()
