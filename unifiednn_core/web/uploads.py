"""Resumable uploads of any size, similar to tus and the IETF draft.

1. `POST /files/uploads` with JSON `{"filename", "size_bytes", "sha256"?, "kinds"?}` gives 201 and the upload.
2. `PATCH /files/uploads/ID` with `Upload-Offset: N` sends any number of bytes from offset N on; 204. Bytes that
   arrived before a lost connection are kept.
3. `GET` or `HEAD /files/uploads/ID` gives the current `Upload-Offset`. 409 means that another connection is still
   sending, or that N is wrong: ask again after a moment.
4. `POST /files/uploads/ID/finish` checks and imports the file: 200 and the file, or 422 and the findings; after 422
   nothing is kept.
5. `DELETE /files/uploads/ID` deletes it. After a day without a byte it is deleted as well.

Only the person who began an upload can see it. Requests caused by pages of other sites are refused.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from unifiednn_core.base.errors import BadInput
from unifiednn_core.service.facade import Service
from unifiednn_core.service.importing import KINDS, Kind
from unifiednn_core.views.library import UploadView
from unifiednn_core.web.answers import Admit, Handler, endpoint

STALLED_S = 30.0
"""A connection without a byte for this long counts as dead, and another one can continue."""
LONGEST_HEAD_BYTES = 16 * 1024
OFFSET = "Upload-Offset"
LENGTH = "Upload-Length"


class Begin(BaseModel):
    """Announcement of a file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    filename: str
    size_bytes: Annotated[int, Field(strict=True, ge=0)]
    sha256: str | None = None
    kinds: tuple[Kind, ...] = KINDS


def routes(admit: Admit) -> list[Route]:
    """Routes of uploads."""
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
    content = bytearray()
    async for chunk in request.stream():
        content += chunk
        if len(content) > LONGEST_HEAD_BYTES:
            raise _wrong("The body is larger than a name, a size and a hash.", "Send the file's bytes by PATCH.")
    try:
        asked = Begin.model_validate_json(bytes(content))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "body"
        raise _wrong(f"{where}: {first['msg']}.", "Send {filename, size_bytes, sha256, kinds} as JSON.") from None
    upload = await run_in_threadpool(
        service.library.begin_upload, asked.filename, asked.size_bytes, asked.sha256, asked.kinds
    )
    return _told(upload, 201, Location=f"{request.url.path}/{upload.upload_id}")


async def _tell(request: Request, service: Service) -> Response:
    return _told(await run_in_threadpool(service.library.upload, request.path_params["upload"]), 200)


async def _append(request: Request, service: Service) -> Response:
    given = request.headers.get(OFFSET, "")
    if not (given.isascii() and given.isdigit()):
        raise _wrong(f"{OFFSET} is not a number of bytes.", "Send the offset of the first byte.")
    upload = await service.library.append_upload(request.path_params["upload"], int(given), _arriving(request))
    return Response(status_code=204, headers=_places(upload))


async def _finish(request: Request, service: Service) -> Response:
    file = await run_in_threadpool(service.library.finish_upload, request.path_params["upload"])
    return JSONResponse(asdict(file), headers={"Cache-Control": "no-store"})


async def _drop(request: Request, service: Service) -> Response:
    await run_in_threadpool(service.library.drop_upload, request.path_params["upload"])
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


def _told(upload: UploadView, status: int, **headers: str) -> JSONResponse:
    content = {name: getattr(upload, name) for name in ("upload_id", "filename", "size_bytes", "offset_bytes")}
    return JSONResponse(content, status, headers=_places(upload) | headers)


def _places(upload: UploadView) -> dict[str, str]:
    return {OFFSET: str(upload.offset_bytes), LENGTH: str(upload.size_bytes), "Cache-Control": "no-store"}


def _wrong(message: str, remedy: str) -> BadInput:
    return BadInput.of("Upload", field="request", message=message, remedy=remedy)
