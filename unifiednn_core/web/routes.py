"""All routes beside the pages."""

from starlette.routing import Route

from unifiednn_core.web import downloads
from unifiednn_core.web.answers import Admit


def routes(admit: Admit) -> list[Route]:
    """Routes for downloads; `admit` says for whom a request is."""
    return downloads.routes(admit)
