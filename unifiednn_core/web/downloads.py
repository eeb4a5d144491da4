"""Downloads: models, checkpoints, reports and documents. Files are streamed; memory stays flat at any size.

| address | what |
|---|---|
| `/files/models/RUN/SUBMODEL` | zip of a trained model |
| `/files/checkpoints/RUN/SUBMODEL` | newest checkpoint of a sub-model |
| `/files/runs/RUN.json` | results of a run, as `unifiednn train --json` prints them |
| `/files/specs/RUN.json` | spec of a run |
| `/files/comparisons/RUN.json` | comparison with its baselines, as `unifiednn compare --json` prints it |
| `/files/reports/RUN.html` | the same as one HTML page that needs no network |

A file knows `Range`, and its `ETag` changes with it, so that a download that was cut off goes on where it was.
"""

import hashlib
import json
from pathlib import Path

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from unifiednn_core.errors import NotFound
from unifiednn_core.service import Service
from unifiednn_core.web.answers import Admit, Handler, endpoint

# Kept by nobody between us and the browser, and asked for anew by the browser: rights may have changed.
PRIVATE = {"Cache-Control": "private, no-cache"}
# A compressed answer would have neither ranges nor a length; models do not compress anyway.
AS_IT_IS = {"Content-Encoding": "identity"}


def routes(admit: Admit) -> list[Route]:
    """Routes of all downloads, for those whom `admit` lets in."""
    handlers: dict[str, Handler] = {
        "/files/models/{run}/{submodel}": _model,
        "/files/checkpoints/{run}/{submodel}": _checkpoint,
        "/files/runs/{run}.json": _results,
        "/files/specs/{run}.json": _spec,
        "/files/comparisons/{run}.json": _comparison,
        "/files/reports/{run}.html": _report,
    }
    return [Route(path, endpoint(handler, admit), methods=["GET"]) for path, handler in handlers.items()]


async def _model(request: Request, service: Service) -> Response:
    run, submodel = request.path_params["run"], request.path_params["submodel"]
    path = await run_in_threadpool(service.artifact, run, submodel)
    return await run_in_threadpool(_file, path, f"{run}-{path.name}", "application/zip")


async def _checkpoint(request: Request, service: Service) -> Response:
    run, submodel = request.path_params["run"], request.path_params["submodel"]
    path = await run_in_threadpool(service.checkpoint, run, submodel)
    return await run_in_threadpool(_file, path, f"{run}-{submodel}-{path.name}", "application/octet-stream")


async def _results(request: Request, service: Service) -> Response:
    run = request.path_params["run"]
    return _document(json.dumps(await run_in_threadpool(service.document, run), indent=2), f"{run}.json")


async def _spec(request: Request, service: Service) -> Response:
    run = request.path_params["run"]
    return _document(json.dumps(await run_in_threadpool(service.spec_document, run), indent=2), f"{run}-spec.json")


async def _comparison(request: Request, service: Service) -> Response:
    run = request.path_params["run"]
    found = await run_in_threadpool(service.comparison_document, run)
    return _document(json.dumps(found, indent=2), f"{run}-comparison.json")


async def _report(request: Request, service: Service) -> Response:
    run = request.path_params["run"]
    return _document(await run_in_threadpool(service.report, run), f"{run}-comparison.html", "text/html")


def _file(path: Path, name: str, media_type: str) -> FileResponse:
    try:
        stat = path.stat()
    except OSError:
        raise NotFound(f"The file '{name}' is not there any more. Open the page again and take the newest.") from None
    # Files here are written once and replaced whole, so that these three say which bytes they are.
    tag = hashlib.sha256(f"{stat.st_ino} {stat.st_size} {stat.st_mtime_ns}".encode()).hexdigest()
    headers = PRIVATE | AS_IT_IS | {"ETag": f'"{tag}"'}
    return FileResponse(path, headers=headers, media_type=media_type, filename=name, stat_result=stat)


def _document(text: str, name: str, media_type: str = "application/json") -> Response:
    content = text.encode()
    headers = PRIVATE | {
        "ETag": f'"{hashlib.sha256(content).hexdigest()}"',
        "Content-Disposition": f'attachment; filename="{name}"',
    }
    return Response(content, headers=headers, media_type=media_type)
