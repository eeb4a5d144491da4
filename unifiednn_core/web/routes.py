"""All routes besides the pages. Downloads are streamed; memory stays flat at any size.

| address | what |
|---|---|
| `/files/models/RUN/SUBMODEL` | zip of a trained model |
| `/files/checkpoints/RUN/SUBMODEL` | newest checkpoint of a sub-model |
| `/files/runs/RUN.json` | results of a run, as `unifiednn train --json` prints them |
| `/files/metrics/RUN.csv` | every point of every curve of a run |
| `/files/specs/RUN.json` | spec of a run |
| `/files/logs/RUN.txt` | events of a run, and the newest lines of its workers |
| `/files/comparisons/RUN.json` | comparison with its baselines, as `unifiednn compare --json` prints it |
| `/files/reports/RUN.html` | the same as one HTML page that needs no network |
| `/assets/plotly.min.js` | the library of the charts |
| `/assets/charts.js` | our scripts that draw them |
| `/api/v1/...` | the actions of the command line (`rest.py`); `/api/v1` itself shows them to people |

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
from unifiednn_core.views.report.charts import plotly_js, scripts
from unifiednn_core.web import api_page, rest, uploads
from unifiednn_core.web.answers import Admit, Handler, endpoint

Read = Callable[[str], str | dict[str, object]]
"""Returns a text or a document about a run."""
PLOTLY, CHARTS = "/assets/plotly.min.js", "/assets/charts.js"
A_DAY = {"Cache-Control": "public, max-age=86400"}
# No shared cache, and the browser asks again: permissions may have changed.
PRIVATE = {"Cache-Control": "private, no-cache"}
# A compressed response would have no ranges and no length; models do not compress anyway.
AS_IT_IS = {"Content-Encoding": "identity"}


def routes(admit: Admit) -> list[Route]:
    """Return all routes; `admit` identifies the sender of a request."""
    handlers = {
        "/files/models/{run}/{submodel}": _model,
        "/files/checkpoints/{run}/{submodel}": _checkpoint,
        "/files/runs/{run}.json": _text(lambda service: service.runs.document, ".json"),
        "/files/metrics/{run}.csv": _text(lambda service: service.runs.metrics_csv, "-metrics.csv", "text/csv"),
        "/files/specs/{run}.json": _text(lambda service: service.runs.spec_document, "-spec.json"),
        "/files/logs/{run}.txt": _text(lambda service: service.logs.log_text, "-log.txt", "text/plain"),
        "/files/comparisons/{run}.json": _text(
            lambda service: service.comparisons.comparison_document, "-comparison.json"
        ),
        "/files/reports/{run}.html": _text(lambda service: service.comparisons.report, "-comparison.html", "text/html"),
    }
    served = [Route(path, endpoint(handler, admit), methods=["GET"]) for path, handler in handlers.items()]
    return [
        Route(PLOTLY, _plotly, methods=["GET"]),
        Route(CHARTS, _charts, methods=["GET"]),
        *served,
        *uploads.routes(admit),
        *rest.routes(admit),
        *api_page.routes(),
    ]


async def _plotly(_: Request) -> FileResponse:
    """Serve plotly.min.js from the installed plotly package, to anyone: it holds no data."""
    return FileResponse(plotly_js(), headers=A_DAY, media_type="text/javascript")


async def _charts(_: Request) -> Response:
    """Serve the scripts that draw the charts, to anyone; pages ask with a version."""
    return Response(await run_in_threadpool(scripts), headers=A_DAY, media_type="text/javascript")


async def _model(request: Request, service: Service) -> Response:
    run, submodel = request.path_params["run"], request.path_params["submodel"]
    path = await run_in_threadpool(service.runs.artifact, run, submodel)
    return await run_in_threadpool(_file, path, f"{run}-{path.name}", "application/zip")


async def _checkpoint(request: Request, service: Service) -> Response:
    run, submodel = request.path_params["run"], request.path_params["submodel"]
    path = await run_in_threadpool(service.runs.checkpoint, run, submodel)
    return await run_in_threadpool(_file, path, f"{run}-{submodel}-{path.name}", "application/octet-stream")


def _text(method: Callable[[Service], Read], suffix: str, media_type: str = "application/json") -> Handler:
    """Handler that serves what a method returns for a run as `RUN` and the suffix; documents as JSON."""

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
    # Files are only replaced as a whole, so these three values identify the content.
    tag = hashlib.sha256(f"{stat.st_ino} {stat.st_size} {stat.st_mtime_ns}".encode()).hexdigest()
    headers = PRIVATE | AS_IT_IS | {"ETag": f'"{tag}"'}
    return FileResponse(path, headers=headers, media_type=media_type, filename=name, stat_result=stat)
