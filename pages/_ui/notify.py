"""The switch in the sidebar with which a person lets the browser tell of the ends of their own runs."""

from functools import cache
from pathlib import Path
from typing import Any

import streamlit as st

from pages._ui import signed_in
from unifiednn_core.service.roles import Role

ADDRESS = "api/v1/news"
TITLES = {
    "run.completed": "{name} is complete",
    "run.failed": "{name} failed",
    "run.interrupted": "{name} was interrupted",
    "submodel.failed": "{submodel} of {name} failed",
    "submodel.interrupted": "{submodel} of {name} was interrupted",
    "submodel.ready": "{submodel} of {name} can be downloaded",
}
"""By event of `service.notifications.news`."""


def draw() -> None:
    """Draw the switch; nothing for a viewer, who has no runs. The browser asks for the news, not this page."""
    person = signed_in.actor()
    if person is not None and person.role is Role.VIEWER:
        return
    texts = {event: title.format(name="{name}", submodel="{submodel}") for event, title in TITLES.items()}
    texts |= {
        "off": "Notify me of my runs",
        "on": "Notifications are on",
        "blocked": "The browser blocks notifications",
        "body": "Open the run",
    }
    with st.sidebar, st.container(key="notify"):
        _component()(data={"address": ADDRESS, "texts": texts}, key="notify-switch")


@cache
def _component() -> Any:
    script = Path(__file__).with_name("notify.js").read_text(encoding="utf-8")
    return st.components.v2.component("unifiednn_notify", js=script, isolate_styles=False)
