"""Requests and responses: every error becomes JSON with its remedy."""

from collections.abc import Awaitable, Callable

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from unifiednn_core.base import errors
from unifiednn_core.base.errors import BadInput, Finding, UnifiedNNError, UploadConflict
from unifiednn_core.service.facade import Service

Admit = Callable[[Request], Service]
"""Returns the service for the sender of a request; raises `Unauthorised`."""
Handler = Callable[[Request, Service], Awaitable[Response]]

STATUS: dict[type[UnifiedNNError], int] = {
    errors.NotFound: 404,
    errors.Unauthorised: 401,
    errors.Forbidden: 403,
    BadInput: 422,
    UploadConflict: 409,
}
TITLES = {401: "Not signed in", 403: "Not allowed", 404: "Not found", 409: "Not now", 500: "Not possible"}
CUT_OFF = 499  # by convention: the client disconnected


def endpoint(handler: Handler, admit: Admit) -> Callable[[Request], Awaitable[Response]]:
    """Endpoint that calls a handler with the sender's service; the handler may raise any error of this project."""

    async def answer(request: Request) -> Response:
        try:
            return await handler(request, await run_in_threadpool(admit, request))
        except UnifiedNNError as error:
            return refusal(error)
        except ClientDisconnect:
            return Response(status_code=CUT_OFF)

    return answer


def refusal(error: UnifiedNNError) -> JSONResponse:
    """An error as a list of findings, with its status."""
    status = next((code for kind, code in STATUS.items() if isinstance(error, kind)), 500)
    found = error.findings if isinstance(error, BadInput) else (_finding(error, status),)
    headers = {"Cache-Control": "no-store"}
    if isinstance(error, UploadConflict):
        headers["Upload-Offset"] = str(error.offset_bytes)
    return JSONResponse({"findings": [finding.model_dump(mode="json") for finding in found]}, status, headers)


def _finding(error: UnifiedNNError, status: int) -> Finding:
    message, _, remedy = str(error).partition(". ")
    remedy = remedy or "Open the page again and take what it shows now."
    return Finding(title=TITLES[status], field="request", message=f"{message.rstrip('.')}.", remedy=remedy)
