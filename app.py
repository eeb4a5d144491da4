"""The dashboard: `streamlit run app.py`. Every page is a file of pages/ and works without this one."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import streamlit as st

from pages._ui import frame, late_ticks, signed_in
from unifiednn_core.base.files import set_private_umask
from unifiednn_core.machine import allocator
from unifiednn_core.preflight import client
from unifiednn_core.web.guard import middleware
from unifiednn_core.web.routes import routes

if __name__ == "__main__":  # for each visitor
    frame.route()
else:  # once, by the server
    set_private_umask()
    allocator.return_early()  # else memory grows as viewers come and go
    late_ticks.drop()
    client.start()  # loads torch in the background, so that the first upload does not wait for it

    @asynccontextmanager
    async def lifespan(_: st.App) -> AsyncIterator[None]:
        """Continue what the server before this one left, also if nobody visits."""
        signed_in.open_soon()
        yield

    paths = [*frame.routes(), *routes(signed_in.admit, signed_in.opened)]
    app = st.App(__file__, lifespan=lifespan, routes=paths, middleware=middleware(signed_in.is_local))
