"""Requests and responses: every error becomes a problem document (RFC 9457) whose findings have remedies."""

import logging
from collections.abc import Awaitable, Callable, Sequence

from sqlalchemy.exc import DatabaseError
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from unifiednn_core.base import errors
from unifiednn_core.base.errors import (
    BadInput,
    DiskFull,
    Finding,
    Forbidden,
    IllegalTransition,
    UnifiedNNError,
    UploadConflict,
)
from unifiednn_core.base.trouble import is_disk_full, log_error
from unifiednn_core.service.facade import Service
from unifiednn_core.web.guard import is_own

Admit = Callable[[Request], Service]
"""Returns the service for the sender of a request; raises `Unauthorised`."""
Handler = Callable[[Request, Service], Awaitable[Response]]

STATUS: dict[type[UnifiedNNError], int] = {
    errors.NotFound: 404,
    errors.Unauthorised: 401,
    Forbidden: 403,
    BadInput: 422,
    UploadConflict: 409,
    IllegalTransition: 409,
    DiskFull: 503,
}
TITLES = {
    400: "Not readable",
    401: "Not signed in",
    403: "Not allowed",
    404: "Not found",
    409: "Not now",
    413: "Too large",
    415: "Not JSON",
    422: "Wrong input",
    500: "Not possible",
    503: "Not available",
}
PROBLEM = "application/problem+json"
CUT_OFF = 499  # by convention: the client disconnected
_log = logging.getLogger(__name__)


def endpoint(handler: Handler, admit: Admit) -> Callable[[Request], Awaitable[Response]]:
    """Endpoint that calls a handler with the sender's service; the handler may raise any error of this project.

    Requests that change something are refused if they come from pages of other sites.
    """

    async def answer(request: Request) -> Response:
        try:
            if request.method not in ("GET", "HEAD"):
                _require_same_site(request)
            return await handler(request, await run_in_threadpool(admit, request))
        except UnifiedNNError as error:
            return refusal(error)
        except ClientDisconnect:
            return Response(status_code=CUT_OFF)
        except (OSError, DatabaseError) as error:
            return failure(error, request)

    return answer


def failure(error: OSError | DatabaseError, request: Request) -> JSONResponse:
    """The answer if the disk or the store refuses what a request needs."""
    if is_disk_full(error):
        return refusal(DiskFull())
    log_error(_log, "%s %s failed.", request.method, request.url.path)
    said, remedy = "The server could not do this now.", "Try again; its log says more."
    return problem(503, [Finding(title=TITLES[503], field="store", message=said, remedy=remedy)])


def refusal(error: UnifiedNNError) -> JSONResponse:
    """An error as a problem document, with its status."""
    status = next((code for kind, code in STATUS.items() if isinstance(error, kind)), 500)
    answer = problem(status, error.findings if isinstance(error, BadInput) else (_finding(error, status),))
    if isinstance(error, UploadConflict):
        answer.headers["Upload-Offset"] = str(error.offset_bytes)
    return answer


def problem(status: int, findings: Sequence[Finding]) -> JSONResponse:
    """Findings as a problem document."""
    told = {
        "type": "about:blank",
        "title": TITLES[status],
        "status": status,
        "detail": " ".join(str(finding) for finding in findings[:1]),
        "findings": [finding.model_dump(mode="json") for finding in findings],
    }
    headers = {"Cache-Control": "no-store"} | ({"WWW-Authenticate": "Bearer"} if status == 401 else {})
    return JSONResponse(told, status, headers, media_type=PROBLEM)


def _require_same_site(request: Request) -> None:
    """Refuse requests from pages of other sites, by the two headers in which browsers report them.

    Requests with a cookie must send one of them; those with a token or from the machine itself need not.
    """
    site = request.headers.get("Sec-Fetch-Site")
    origin = request.headers.get("Origin")
    if site is not None:
        same = site in ("same-origin", "none")
    elif origin is not None:
        same = is_own(origin, request.headers)
    else:
        same = not request.cookies or "Authorization" in request.headers
    if not same:
        raise Forbidden("This request comes from a page of another site. Open the dashboard itself and try there.")


def _finding(error: UnifiedNNError, status: int) -> Finding:
    message, _, remedy = str(error).partition(". ")
    remedy = remedy or "Open the page again and take what it shows now."
    return Finding(title=TITLES[status], field="request", message=f"{message.rstrip('.')}.", remedy=remedy)
