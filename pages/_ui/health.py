"""Health of the server, for admins."""

import streamlit as st

from pages._ui import frame
from unifiednn_core.views import markup

PARTS = {"store": "Store", "supervisor": "Supervisor", "intake": "Reading of files", "disk": "Disk"}
WORKS, BROKEN, ASLEEP = "works", "does not work", "starts when needed"
ALL_WELL = "Every part of the server works."
NOT_WELL = "A part that the server needs does not work."
FOR_PROGRAMS = "Programs read the same at /health, figures for Prometheus at /metrics."


def draw() -> None:
    """Draw the parts of the server with their state, and what to do."""
    found = frame.service().monitoring.health()
    if found.ok:
        st.html(markup.notice("green", "check_circle", "Healthy", ALL_WELL))
    else:
        st.html(markup.notice("red", "error", "Not healthy", NOT_WELL))
    table = (
        {
            "Part": PARTS[part.name],
            "State": (WORKS if part.ok else BROKEN if part.vital else ASLEEP),
            "Details": f"{part.text} {part.remedy}".rstrip(),
        }
        for part in found.parts
    )
    st.html(markup.table("Parts of the server", table, {"Part": markup.bold}))
    st.html(markup.small(FOR_PROGRAMS))
