"""Links that download. They are plain links, so that a click works in the moment in which a page is drawn anew."""

from html import escape
from urllib.parse import quote

import streamlit as st

from pages._ui import markup


def link(
    label: str, address: str, *, icon: str = "download", tip: str = "", primary: bool = False, bare: bool = False
) -> None:
    """Draw a link to a download, in the look of a button.

    Args:
        label: What it is called.
        address: Path below the dashboard's own, from `address`.
        icon: Name of a material symbol.
        tip: What is shown where the pointer rests on it.
        primary: Whether it is what one comes to this page for.
        bare: Whether only the icon is shown; screen readers read the label all the same.

    """
    looks = "u-download" + (" u-primary" if primary else "") + (" u-bare" if bare else "")
    words = f'<span class="{"u-unseen" if bare else ""}">{escape(label)}</span>'
    title = f' title="{escape(tip)}"' if tip else ""
    anchor = f'<a class="{looks}" href="{escape(address)}" download{title}>{markup.icon(icon)}{words}</a>'
    st.html(anchor, width="content")


def address(kind: str, *names: str) -> str:
    """Path of a download: relative, so that it holds behind a base path, too."""
    return "/".join(("files", kind, *(quote(name, safe="") for name in names)))
