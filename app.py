"""The dashboard: `streamlit run app.py`. Every screen stands in pages/ and works without this file."""

from functools import cache

import streamlit as st

from pages._ui import screens
from unifiednn_core.service import Service
from unifiednn_core.web.guard import middleware
from unifiednn_core.web.routes import routes


@cache
def _service() -> Service:
    """What answers requests beside the pages; everybody who reaches this server is its one operator."""
    return Service.open()


if __name__ == "__main__":  # for each visitor
    screens.route()
else:  # once, by the server
    app = st.App(__file__, routes=routes(lambda request: _service()), middleware=middleware())
