"""The dashboard: `streamlit run app.py`. Every screen stands in pages/ and works without this file."""

import streamlit as st

from pages._ui import screens, signed_in
from unifiednn_core.web.guard import middleware
from unifiednn_core.web.routes import routes

if __name__ == "__main__":  # for each visitor
    screens.route()
else:  # once, by the server
    app = st.App(__file__, routes=routes(signed_in.admit), middleware=middleware())
