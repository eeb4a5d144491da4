"""The routes of `/api/v1`, made from one table: `TABLE` says what each takes, calls and answers.

The same actions as the command line, as JSON. Whoever asks needs a token (`Authorization: Bearer`), or is signed in; a
request that changes something is refused if a page of another site caused it. Nobody names paths of the server.
"""

import asyncio
import hashlib
import json
from collections.abc import Iterable
from dataclasses import replace

from pydantic import BaseModel, ValidationError
from pydantic_core import to_json
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from unifiednn_core.base.errors import BadInput, Finding
from unifiednn_core.service.facade import Service
from unifiednn_core.spec.findings import finding_of
from unifiednn_core.spec.run import MAX_SPEC_BYTES, parse_json
from unifiednn_core.web.action import ROOT, Action
from unifiednn_core.web.answers import Admit, Handler, endpoint, problem
from unifiednn_core.web.api_runs import RUNS
from unifiednn_core.web.api_server import SERVER

TABLE: tuple[Action, ...] = (*RUNS.rows, *SERVER.rows)
TERMINAL_ALONE = {
    "app": "It starts the server.",
    "pack": "It runs your own code on your own machine.",
    "place": 'Over HTTP, the check of a spec with "placement" answers with the plan.',
    "verify": "It compares a file of the machine where you are with the certificate in it.",
    "inspect": "It reads a file of the machine where you are; over HTTP, upload the file.",
}
"""Commands without a route, each with the reason."""
LONGEST_BODY_BYTES = MAX_SPEC_BYTES
PATIENCE_S = 30.0
"""A body that takes longer to arrive is given up."""
KEY = "Idempotency-Key"
LONGEST_KEY = 200
JSON = "application/json"


def routes(admit: Admit, table: Iterable[Action] = TABLE) -> list[Route]:
    """Routes of the table that are not those of files."""
    return [
        Route(_pattern(action), endpoint(_handler(action), admit), methods=[action.method])
        for action in table
        if action.does is not None
    ]


def _pattern(action: Action) -> str:
    """Address of a route; names of devices of other hosts have a slash."""
    return action.address.replace("/devices/{name}/", "/devices/{name:path}/")


def _handler(action: Action) -> Handler:
    async def handler(request: Request, service: Service) -> Response:
        given = await _given(action, request)
        if isinstance(given, Response):
            return given
        content = await run_in_threadpool(_carry_out, action, _away(service), request, given)
        headers = {"Cache-Control": "no-store"}
        if action.status == 201 and (run_id := json.loads(content).get("run_id") if content[:1] == b"{" else None):
            headers["Location"] = f"{ROOT}/runs/{run_id}"
        return Response(content, action.status, headers, media_type=JSON)

    return handler


def _away(service: Service) -> Service:
    """The service for the same person, as one who is not at the machine: a route takes and tells no paths of it."""
    return service.acting_as(replace(service.actor, here=False)) if service.actor.here else service


async def _given(action: Action, request: Request) -> BaseModel | Response | None:
    """Parameters of a request; a response if they cannot be read. Raises `BadInput` with all findings."""
    if action.method in ("GET", "DELETE"):
        return None if action.given is None else _valid(action.given, dict(request.query_params))
    content = await _body(request)
    if isinstance(content, Response):
        return content
    if content and request.headers.get("Content-Type", "").partition(";")[0].strip().lower() != JSON:
        return _unreadable(415, "Content-Type", "The body is not sent as JSON.", f"Send Content-Type: {JSON}.")
    try:
        document = parse_json(content.decode(), field="body") if content else {}
    except (BadInput, UnicodeDecodeError) as error:
        if isinstance(error, BadInput):
            return problem(400, error.findings)
        return _unreadable(400, "body", "The body is not UTF-8 text.", "Send JSON in UTF-8.")
    if action.given is None:
        return None
    return _valid(action.given, document)


async def _body(request: Request) -> bytes | Response:
    """Bytes of the body, or the refusal of one that is too large or too slow."""
    content = bytearray()
    try:
        async with asyncio.timeout(PATIENCE_S):
            async for chunk in request.stream():
                content += chunk
                if len(content) > LONGEST_BODY_BYTES:
                    message = f"The body has more than {LONGEST_BODY_BYTES} bytes."
                    return _unreadable(413, "body", message, "Send files by uploads; a spec is a small document.")
    except TimeoutError:
        raise ClientDisconnect from None
    return bytes(content)


def _valid(kind: type[BaseModel], document: object) -> BaseModel:
    try:
        return kind.model_validate(document)
    except ValidationError as error:
        raise BadInput([finding_of(detail, document) for detail in error.errors()]) from None


def _carry_out(action: Action, service: Service, request: Request, given: BaseModel | None) -> bytes:
    """Call the action and return its document as JSON, once for each key. In a thread: it may take seconds."""
    named = {} if given is None else {"given": given}
    does, parts = action.does, request.path_params
    if does is None:
        raise TypeError(f"{action.path} has no function")
    key = request.headers.get(KEY) if action.once else None
    if key is None:
        return to_json(does(service, **parts, **named), inf_nan_mode="null")
    if not 0 < len(key) <= LONGEST_KEY:
        raise BadInput.of("Key", KEY, "This is no key.", f"Give 1 to {LONGEST_KEY} characters.")
    asked = to_json([action.method, request.url.path, given])
    requests, person = service.store.requests, service.actor.label
    before = requests.begin(person, key, hashlib.sha256(asked).hexdigest())
    if before is not None:
        return to_json(before)
    try:
        content = to_json(does(service, **parts, **named), inf_nan_mode="null")
    except BaseException:
        requests.answer(person, key, None)
        raise
    requests.answer(person, key, json.loads(content))
    return content


def _unreadable(status: int, field: str, message: str, remedy: str) -> Response:
    return problem(status, [Finding(title="Request", field=field, message=message, remedy=remedy)])
