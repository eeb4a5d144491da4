"""All routes beside the pages."""

from starlette.requests import Request
from starlette.responses import FileResponse
from starlette.routing import Route

from unifiednn_core.views.report.charts import plotly_js
from unifiednn_core.web import downloads, uploads
from unifiednn_core.web.answers import Admit

PLOTLY = "/assets/plotly.min.js"
A_DAY = {"Cache-Control": "public, max-age=86400"}


def routes(admit: Admit) -> list[Route]:
    """Return the routes for downloads, uploads and the charts' library; `admit` says who sends a request."""
    return [Route(PLOTLY, _plotly, methods=["GET"]), *downloads.routes(admit), *uploads.routes(admit)]


async def _plotly(_: Request) -> FileResponse:
    """Serve plotly.min.js from the installed plotly package, to anyone: it holds no data."""
    return FileResponse(plotly_js(), headers=A_DAY, media_type="text/javascript")
