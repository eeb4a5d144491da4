"""Moves the focus of the keyboard to what an action has just made, once."""

from functools import cache
from typing import Any

import streamlit as st

MAIN = "[data-testid=stMain]"
"""What a page shows, beside the sidebar."""
_WANTED = "focus"
SCRIPT = """
export default function ({ data }) {
  if (window.__unifiednnFocus === data.number) return;
  window.__unifiednnFocus = data.number;
  const deadline = performance.now() + 3000; // what was made is drawn a little later
  const look = () => {
    const found = document.querySelector(data.where);
    if (found) {
      found.focus();
      found.setSelectionRange?.(0, 0); // the beginning of a long text, not its end
      setTimeout(() => (found.scrollLeft = 0), 100);
    }
    else if (performance.now() < deadline) setTimeout(look, 50);
  };
  look();
}
"""


def to(where: str) -> None:
    """Focus what a CSS selector finds, after the next drawing."""
    number, _ = st.session_state.get(_WANTED, (0, ""))
    st.session_state[_WANTED] = (number + 1, where)


def draw() -> None:
    """Draw what moves the focus, at the end of a page."""
    if _WANTED in st.session_state:
        number, where = st.session_state[_WANTED]
        _component()(data={"number": number, "where": where}, key="focus")


@cache
def _component() -> Any:
    return st.components.v2.component("unifiednn_focus", js=SCRIPT, isolate_styles=False)
