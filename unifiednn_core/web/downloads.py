"""Downloads: models, checkpoints, reports and documents. Files are streamed; memory stays flat at any size.

| address | what |
|---|---|
| `/files/models/RUN/SUBMODEL` | zip of a trained model |
| `/files/checkpoints/RUN/SUBMODEL` | newest checkpoint of a sub-model |
| `/files/runs/RUN.json` | results of a run, as `unifiednn train --json` prints them |
| `/files/metrics/RUN.csv` | every point of every curve of a run |
| `/files/specs/RUN.json` | spec of a run |
| `/files/comparisons/RUN.json` | comparison with its baselines, as `unifiednn compare --json` prints it |
| `/files/reports/RUN.html` | the same as one HTML page that needs no network |

Files support `Range`, and their `ETag` changes with the content, so a download can resume after a lost connection.
"""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from unifiednn_core.base.errors import NotFound
from unifiednn_core.service.facade import Service
from unifiednn_core.web.answers import Admit, Handler, endpoint

Read = Callable[[str], str | dict[str, object]]
"""From the id of a run to a text or document about it."""
# No cache in between, and the browser asks again: permissions may have changed.
PRIVATE = {"Cache-Control": "private, no-cache"}
# A compressed response would have neither ranges nor a length; models do not compress anyway.
AS_IT_IS = {"Content-Encoding": "identity"}


def routes(admit: Admit) -> list[Route]:
    """Routes of all downloads."""
    handlers = {
        "/files/models/{run}/{submodel}": _model,
        "/files/checkpoints/{run}/{submodel}": _checkpoint,
        "/files/runs/{run}.json": _text(lambda service: service.runs.document, ".json"),
        "/files/metrics/{run}.csv": _text(lambda service: service.runs.metrics_csv, "-metrics.csv", "text/csv"),
        "/files/specs/{run}.json": _text(lambda service: service.runs.spec_document, "-spec.json"),
        "/files/comparisons/{run}.json": _text(
            lambda service: service.comparisons.comparison_document, "-comparison.json"
        ),
        "/files/reports/{run}.html": _text(lambda service: service.comparisons.report, "-comparison.html", "text/html"),
    }
    return [Route(path, endpoint(handler, admit), methods=["GET"]) for path, handler in handlers.items()]


async def _model(request: Request, service: Service) -> Response:
    run, submodel = request.path_params["run"], request.path_params["submodel"]
    path = await run_in_threadpool(service.runs.artifact, run, submodel)
    return await run_in_threadpool(_file, path, f"{run}-{path.name}", "application/zip")


async def _checkpoint(request: Request, service: Service) -> Response:
    run, submodel = request.path_params["run"], request.path_params["submodel"]
    path = await run_in_threadpool(service.runs.checkpoint, run, submodel)
    return await run_in_threadpool(_file, path, f"{run}-{submodel}-{path.name}", "application/octet-stream")


def _text(method: Callable[[Service], Read], suffix: str, media_type: str = "application/json") -> Handler:
    """Handler that serves what a method says about a run, as `RUN` and the suffix; anything but text as JSON."""

    async def handler(request: Request, service: Service) -> Response:
        run = request.path_params["run"]
        found = await run_in_threadpool(method(service), run)
        content = (found if isinstance(found, str) else json.dumps(found, indent=2)).encode()
        headers = PRIVATE | {
            "ETag": f'"{hashlib.sha256(content).hexdigest()}"',
            "Content-Disposition": f'attachment; filename="{run}{suffix}"',
        }
        return Response(content, headers=headers, media_type=media_type)

    return handler


def _file(path: Path, name: str, media_type: str) -> FileResponse:
    try:
        stat = path.stat()
    except OSError:
        raise NotFound(f"The file '{name}' is gone. Open the page again for the newest.") from None
    # Files are only ever replaced as a whole, so these three identify the content.
    tag = hashlib.sha256(f"{stat.st_ino} {stat.st_size} {stat.st_mtime_ns}".encode()).hexdigest()
    headers = PRIVATE | AS_IT_IS | {"ETag": f'"{tag}"'}
    return FileResponse(path, headers=headers, media_type=media_type, filename=name, stat_result=stat)
