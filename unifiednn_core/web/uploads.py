"""Uploads of any size that go on after a cut, in the manner of tus and of the IETF's resumable uploads.

1. `POST /files/uploads` with JSON `{"filename", "size_bytes", "sha256"?, "kinds"?}` gives 201 and the upload.
2. `PATCH /files/uploads/ID` with `Upload-Offset: N` sends the bytes from place N on, as many as one likes; 204. What
   arrived when the connection broke is kept.
3. After a cut, `GET` or `HEAD /files/uploads/ID` says in `Upload-Offset` where to go on. 409 means that another
   connection is still at it, or that N is another place: ask again, after a moment.
4. `POST /files/uploads/ID/finish` has the whole looked at and taken into the library: 200 and the file, or 422 and
   the findings, and then nothing is kept.
5. `DELETE /files/uploads/ID` forgets it. So does a day without a byte.

An upload is known to whoever began it. Requests that a page of another site caused are refused.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from unifiednn_core.errors import BadInput, Forbidden
from unifiednn_core.service import Service
from unifiednn_core.taking_in import KINDS, Kind
from unifiednn_core.uploads import UploadView
from unifiednn_core.web.answers import Admit, Handler, endpoint

STALLED_S = 30.0
"""A connection that gives no byte for so long is taken for dead, so that another one can go on."""
LONGEST_HEAD_BYTES = 16 * 1024
OFFSET = "Upload-Offset"
LENGTH = "Upload-Length"


class Begin(BaseModel):
    """What is said of a file before its bytes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    filename: str
    size_bytes: Annotated[int, Field(strict=True, ge=0)]
    sha256: str | None = None
    kinds: tuple[Kind, ...] = KINDS


def routes(admit: Admit) -> list[Route]:
    """Routes of uploads, for those whom `admit` lets in."""
    one = "/files/uploads/{upload}"
    handlers: list[tuple[str, str, Handler]] = [
        ("/files/uploads", "POST", _begin),
        (one, "GET", _tell),
        (one, "PATCH", _append),
        (one, "DELETE", _drop),
        (f"{one}/finish", "POST", _finish),
    ]
    return [Route(path, endpoint(handler, admit), methods=[method]) for path, method, handler in handlers]


async def _begin(request: Request, service: Service) -> Response:
    _require_same_site(request)
    content = bytearray()
    async for chunk in request.stream():
        content += chunk
        if len(content) > LONGEST_HEAD_BYTES:
            raise _wrong("This says more than a name, a size and a hash.", "Send the file's bytes by PATCH.")
    try:
        asked = Begin.model_validate_json(bytes(content))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "body"
        raise _wrong(f"{where}: {first['msg']}.", "Send {filename, size_bytes, sha256, kinds} as JSON.") from None
    upload = await run_in_threadpool(service.begin_upload, asked.filename, asked.size_bytes, asked.sha256, asked.kinds)
    return _told(upload, 201, Location=f"{request.url.path}/{upload.upload_id}")


async def _tell(request: Request, service: Service) -> Response:
    return _told(await run_in_threadpool(service.upload, request.path_params["upload"]), 200)


async def _append(request: Request, service: Service) -> Response:
    _require_same_site(request)
    given = request.headers.get(OFFSET, "")
    if not (given.isascii() and given.isdigit()):
        raise _wrong(f"{OFFSET} is no number of bytes.", "Say at which place these bytes begin.")
    upload = await service.append_upload(request.path_params["upload"], int(given), _arriving(request))
    return Response(status_code=204, headers=_places(upload))


async def _finish(request: Request, service: Service) -> Response:
    _require_same_site(request)
    file = await run_in_threadpool(service.finish_upload, request.path_params["upload"])
    return JSONResponse(asdict(file), headers={"Cache-Control": "no-store"})


async def _drop(request: Request, service: Service) -> Response:
    _require_same_site(request)
    await run_in_threadpool(service.drop_upload, request.path_params["upload"])
    return Response(status_code=204)


async def _arriving(request: Request) -> AsyncIterator[bytes]:
    stream = request.stream()
    while True:
        try:
            yield await asyncio.wait_for(anext(stream), STALLED_S)
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise ClientDisconnect from None


def _require_same_site(request: Request) -> None:
    """Refuse what a page of another site caused: a browser says so, in one of two headers.

    Whoever is known by a cookie has to send one of them; what acts by a token, or at the machine itself, need not.
    """
    site = request.headers.get("Sec-Fetch-Site")
    origin = request.headers.get("Origin")
    if site is not None:
        same = site in ("same-origin", "none")
    elif origin is not None:
        same = urlsplit(origin).netloc == request.headers.get("Host")
    else:
        same = not request.cookies or "Authorization" in request.headers
    if not same:
        raise Forbidden("This request comes from a page of another site. Open the dashboard itself and try there.")


def _told(upload: UploadView, status: int, **headers: str) -> JSONResponse:
    content = {
        "upload_id": upload.upload_id,
        "filename": upload.filename,
        "size_bytes": upload.size_bytes,
        "offset_bytes": upload.offset_bytes,
    }
    return JSONResponse(content, status, headers=_places(upload) | headers)


def _places(upload: UploadView) -> dict[str, str]:
    return {OFFSET: str(upload.offset_bytes), LENGTH: str(upload.size_bytes), "Cache-Control": "no-store"}


def _wrong(message: str, remedy: str) -> BadInput:
    return BadInput.of("Upload", field="request", message=message, remedy=remedy)
