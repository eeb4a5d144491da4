"""Hosts: rows with a button on Queue, a table on Admin. Nothing is drawn where there is one host alone."""

from collections.abc import Sequence
from functools import partial

import streamlit as st

from pages._ui import actions, frame
from unifiednn_core.spec.devices import SERVER
from unifiednn_core.views import markup, wording
from unifiednn_core.views.hosts import ListedHost

STATES: dict[str, tuple[str, wording.Colour, str]] = {
    "ready": ("check", "green", "Its devices take what waits."),
    "draining": ("output", "orange", "Its devices take nothing new, and what trains there goes on elsewhere."),
    "parking": ("output", "orange", "Its agent ends: what trains there goes on elsewhere."),
    "silent": ("help", "orange", "Its lease is overdue: it is declared lost after 30 s without a heartbeat."),
    "away": ("power_off", "gray", "It left or is lost. Its devices return with its agent."),
}


def draw(hosts: Sequence[ListedHost]) -> None:
    """Draw a row for each host, with a button that drains it, or forgets it once it is away."""
    if len(hosts) < 2:
        return
    st.html(markup.section("Hosts", wording.count_text(len(hosts), "host")))
    with st.container(key="rows-hosts"):
        for host in hosts:
            with st.container(horizontal=True, vertical_alignment="center", key=f"row-host-{host.name}"):
                st.html(_row(host))
                with st.container(horizontal=True, key=f"icons-host-{host.name}", width=40, wrap=False):
                    _button(host)


def table(hosts: Sequence[ListedHost]) -> None:
    """Draw what each host runs, and what differs from the server."""
    if len(hosts) < 2:
        return
    rows = (
        {
            "Host": host.name,
            "State": host.state.capitalize(),
            "Versions": ", ".join(f"{name} {version}" for name, version in host.versions.items()),
            "What differs": " ".join(host.differences) or "nothing",
        }
        for host in hosts
    )
    st.html(markup.table("Hosts", rows, {"Host": markup.bold}))


def _row(host: ListedHost) -> str:
    name = f'<b>{markup.text(host.name)}</b><span class="u-under u-clip">{markup.text(host.machine)}</span>'
    icon, colour, sentence = STATES[host.state]
    state = markup.badge(host.state.capitalize(), icon, colour, sentence)
    devices = wording.count_text(len(host.devices), "device")
    free = "" if host.state == "away" else "free"
    work = f"in {wording.count_text(host.hybrids, 'hybrid')}" if host.hybrids else free
    heard = f"heard of {frame.ago(frame.now_s() - host.silent_s, seconds=True)}"
    cells = (name, state, markup.text(work), markup.text(devices), markup.faint(heard))
    return markup.cells("u-brief u-device", cells)


def _button(host: ListedHost) -> None:
    desk, forget = frame.service().devices, f"Forget {wording.plain(host.name)}"
    if host.state == "away" and not host.hybrids and host.name != SERVER:
        if actions.icon_button(forget, "delete", f"forget-host-{host.name}"):
            actions.attempt(partial(desk.forget_host, host.name))
            st.rerun()
        return
    actions.drain_button(host.name, host.state, f"host-{host.name}", drain=desk.drain_host, ready=desk.ready_host)
