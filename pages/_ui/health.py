"""Health of the server, for admins."""

import streamlit as st

from pages._ui import frame, host_rows
from unifiednn_core.base.texts import tr
from unifiednn_core.views import markup

PARTS = {
    "store": "Store",
    "supervisor": "Supervisor",
    "intake": "Reading of files",
    "disk": "Disk",
}
WORKS, BROKEN, ASLEEP = "works", "does not work", "starts when needed"
ALL_WELL = "Every part of the server works."
NOT_WELL = "A part that the server needs does not work."
FOR_PROGRAMS = "Programs read the same at /health, figures for Prometheus at /metrics."


def draw() -> None:
    """Draw the parts of the server with their state, and what to do."""
    found = frame.service().monitoring.health()
    if found.ok:
        st.html(markup.notice("green", "check_circle", tr("Healthy"), tr(ALL_WELL)))
    else:
        st.html(markup.notice("red", "error", tr("Not healthy"), tr(NOT_WELL)))
    table = (
        {
            tr("Part"): tr(PARTS[part.name]),
            tr("State"): tr(WORKS if part.ok else BROKEN if part.vital else ASLEEP),
            tr("Details"): f"{part.text} {part.remedy}".rstrip(),
        }
        for part in found.parts
    )
    st.html(markup.table(tr("Parts of the server"), table, {tr("Part"): markup.bold}))
    host_rows.table(frame.service().devices.hosts())
    st.html(markup.small(tr(FOR_PROGRAMS)))
