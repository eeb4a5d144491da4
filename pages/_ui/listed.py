"""A list of entries that one adds to, reorders and shortens. Each entry keeps its fields when it moves."""

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from pages._ui import actions
from unifiednn_core.views import markup

Entry = Mapping[str, Any]
ICONS = {"up": ("arrow_upward", "Move up {name}", -1), "down": ("arrow_downward", "Move down {name}", 1)}


def entries(seeds: Sequence[Entry], *, key: str) -> list[tuple[int, Entry]]:
    """Entries in order, each with a number that no other has: it belongs into the keys of its fields.

    `seeds` are those of the first drawing.
    """
    return list(st.session_state.setdefault(f"{key}-entries", list(enumerate(seeds))))


def add(key: str, *new: Entry) -> None:
    """Append entries, from the next drawing on."""
    held = st.session_state[f"{key}-entries"]
    first = 1 + max((number for number, _ in held), default=-1)
    st.session_state[f"{key}-entries"] = [*held, *enumerate(new, first)]


def head(title: str, words: str, at: int, *, key: str) -> None:
    """Draw the head of the entry at a place: its title, what it is, and the buttons that move and remove it."""
    count = len(st.session_state[f"{key}-entries"])
    with st.container(horizontal=True, vertical_alignment="center", key=f"row-{key}-{at}"):
        said = f'<div class="u-small u-faint">{markup.text(words)}</div>' if words else ""
        st.html(markup.bold(title) + said, width="stretch")
        with st.container(horizontal=True, key=f"icons-{key}-{at}", width="content", wrap=False):
            for verb, (icon, says, by) in ICONS.items():
                label, off = says.format(name=title), not 0 <= at + by < count
                more: dict[str, Any] = {"disabled": off, "on_click": _move, "args": (key, at, at + by)}
                actions.icon_button(label, icon, f"{key}-{verb}-{at}", **more)
            actions.icon_button(f"Remove {title}", "delete", f"{key}-remove-{at}", on_click=_remove, args=(key, at))


def _move(key: str, at: int, to: int) -> None:
    held = list(st.session_state[f"{key}-entries"])
    held.insert(to, held.pop(at))
    st.session_state[f"{key}-entries"] = held


def _remove(key: str, at: int) -> None:
    held = st.session_state[f"{key}-entries"]
    st.session_state[f"{key}-entries"] = [*held[:at], *held[at + 1 :]]
