"""All routes besides the pages. Downloads are streamed; memory stays flat at any size.

| address | what |
|---|---|
| `/files/models/RUN/SUBMODEL` | zip of a trained model |
| `/files/models/RUN` | zip of the zips of all trained models of a run, made while it is sent |
| `/files/tensorboard/RUN.zip` | TensorBoard event files of a run |
| `/files/checkpoints/RUN/SUBMODEL` | newest checkpoint of a sub-model |
| `/files/runs/RUN.json` | results of a run, as `unifiednn train --json` prints them |
| `/files/metrics/RUN.csv` | every point of every curve of a run |
| `/files/specs/RUN.json` | spec of a run |
| `/files/logs/RUN.txt` | events of a run, and the newest lines of its workers |
| `/files/comparisons/RUN.json` | comparison with its baselines, as `unifiednn compare --json` prints it |
| `/files/reports/RUN.html` | the same as one HTML page that needs no network |
| `/files/selections.json?runs=A,B` | two to six runs or sub-models side by side; also `.csv`, `.html` |
| `/assets/plotly.min.js` | the library of the charts |
| `/assets/charts.js` | our scripts that draw them |
| `/api/v1/...` | the actions of the command line (`rest.py`); `/api/v1` itself shows them to people |
| `/metrics`, `/health` | figures for Prometheus, and whether the server works (`metrics.py`) |

Files that are not made while they are sent support `Range`, and their `ETag` changes with the content, so a download
can resume after a lost connection.
"""

import hashlib
import io
import json
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Route

from unifiednn_core.base.errors import NotFound
from unifiednn_core.service.facade import Service
from unifiednn_core.views.report.charts import plotly_js, scripts
from unifiednn_core.web import api_page, metrics, rest, uploads
from unifiednn_core.web.answers import Admit, Handler, endpoint

Read = Callable[[str], str | dict[str, object]]
"""Returns a text or a document about a run."""
PLOTLY, CHARTS = "/assets/plotly.min.js", "/assets/charts.js"
MEDIA_TYPES = {"json": "application/json", "csv": "text/csv", "html": "text/html"}
A_DAY = {"Cache-Control": "public, max-age=86400"}
# No shared cache, and the browser asks again: permissions may have changed.
PRIVATE = {"Cache-Control": "private, no-cache"}
# A compressed response would have no ranges and no length; models do not compress anyway.
AS_IT_IS = {"Content-Encoding": "identity"}
_BLOCK_BYTES = 256 * 1024


def routes(admit: Admit, server: Callable[[], Service]) -> list[Route]:
    """All routes. `admit` identifies the sender of a request; `server` returns the service of the server itself."""
    handlers = {
        "/files/models/{run}/{submodel}": _model,
        "/files/models/{run}": _models,
        "/files/tensorboard/{run}.zip": _tensorboard,
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
    handlers |= {
        "/files/selections.json": _selection(lambda service: service.comparisons.side_by_side_document, "json"),
        "/files/selections.csv": _selection(lambda service: service.comparisons.side_by_side_csv, "csv"),
        "/files/selections.html": _selection(lambda service: service.comparisons.side_by_side_report, "html"),
    }
    served = [Route(path, endpoint(handler, admit), methods=["GET"]) for path, handler in handlers.items()]
    return [
        Route(PLOTLY, _plotly, methods=["GET"]),
        Route(CHARTS, _charts, methods=["GET"]),
        *served,
        *uploads.routes(admit),
        *metrics.routes(admit, server),
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


async def _models(request: Request, service: Service) -> Response:
    """Without ranges and without a length: the zip is made while it is sent."""
    run = request.path_params["run"]
    names = await run_in_threadpool(service.runs.finished, run)
    paths = [await run_in_threadpool(service.runs.artifact, run, name) for name in names]
    if gone := [path.name for path in paths if not path.is_file()]:
        raise NotFound(f"The file '{gone[0]}' is gone. Open the page again for the newest.")
    headers = PRIVATE | AS_IT_IS | {"Content-Disposition": f'attachment; filename="{run}-models.zip"'}
    return StreamingResponse(zipped(paths), headers=headers, media_type="application/zip")


async def _tensorboard(request: Request, service: Service) -> Response:
    run = request.path_params["run"]
    content = await run_in_threadpool(service.exports.tensorboard_zip, run)
    headers = PRIVATE | AS_IT_IS | {"Content-Disposition": f'attachment; filename="{run}-tensorboard.zip"'}
    return Response(content, headers=headers, media_type="application/zip")


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


def _selection(method: Callable[[Service], Callable[[list[str]], str | dict[str, object]]], kind: str) -> Handler:
    """Handler that serves what a method returns for the runs of the query."""

    async def handler(request: Request, service: Service) -> Response:
        refs = [ref for ref in request.query_params.get("runs", "").split(",") if ref]
        found = await run_in_threadpool(method(service), refs)
        content = found if isinstance(found, str) else json.dumps(found, indent=2)
        headers = PRIVATE | {"Content-Disposition": f'attachment; filename="side-by-side.{kind}"'}
        return Response(content, headers=headers, media_type=MEDIA_TYPES[kind])

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


class _Sink(io.RawIOBase):
    """Takes what a zip writes, for the next block of an answer. It has no places, so the zip goes on forwards alone."""

    def __init__(self) -> None:
        self._held: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, content: object) -> int:
        self._held.append(bytes(content))  # type: ignore[call-overload]
        return len(self._held[-1])

    def taken(self) -> bytes:
        """All since the last call."""
        block, self._held = b"".join(self._held), []
        return block


def zipped(files: Sequence[Path]) -> Iterator[bytes]:
    """The blocks of a zip of files under their own names, uncompressed. Raises `OSError` for one that is gone."""
    sink = _Sink()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_STORED) as archive:
        for path in files:
            with path.open("rb") as source, archive.open(path.name, "w", force_zip64=True) as target:
                while block := source.read(_BLOCK_BYTES):
                    target.write(block)
                    yield sink.taken()
            yield sink.taken()
    yield sink.taken()
