"""`python -m tools.bench`: one bench in a terminal.

Exit codes: 0 all promises hold, 1 one does not or the bench failed, 2 bad input, 130 interrupted.
"""

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tools.bench import data, report, result, runner, scenarios, single, techniques_page
from tools.machine import ToolFailed
from unifiednn_core.base.errors import BadInput, UnifiedNNError
from unifiednn_core.base.files import write_text

DONE, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130
RESULTS = Path("bench-results")

out, err = Console(), Console(stderr=True)


def bench(
    name: Annotated[str, typer.Argument(help="Name of the bench; `list` lists them.")],
    scale: Annotated[str, typer.Option(help="cpu: narrowed, minutes; paper: full size, on a GPU.")] = "cpu",
    repeats: Annotated[int, typer.Option(help="Repeats of each arm.", min=1, max=100)] = 5,
    data_folder: Annotated[
        Path | None, typer.Option("--data", help=f"Folder with the data; default: {data.ENVIRONMENT}.")
    ] = None,
    to: Annotated[Path, typer.Option("--out", help="Folder to write the result file into.")] = RESULTS,
    time_s: Annotated[
        float | None, typer.Option("--time-s", help="Cut epochs and repeats to fit into this many seconds.", min=1)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")] = False,
) -> None:
    """Measure hybrids against plain PyTorch, in a temporary home. Nothing else should run on the machine."""
    try:
        found = _measured(name, scale, repeats, data_folder, to, time_s, quiet=as_json)
    except BadInput as error:
        if as_json:
            findings = [finding.model_dump() for finding in error.findings]
            sys.stdout.write(json.dumps({"status": "bad_input", "findings": findings}, indent=2) + "\n")
        for finding in error.findings:
            err.print(f"[bold red]error[/] {escape(str(finding))}", soft_wrap=True)
        raise typer.Exit(BAD_INPUT) from None
    except KeyboardInterrupt:
        err.print("Interrupted; finished repeats are kept.")
        raise typer.Exit(INTERRUPTED) from None
    except (UnifiedNNError, OSError) as error:
        err.print(f"[bold red]error[/] {escape(str(error))}", soft_wrap=True)
        raise typer.Exit(FAILED) from None
    if as_json:
        sys.stdout.write(json.dumps(found, indent=2) + "\n")
    else:
        _show(found)
    raise typer.Exit(DONE if found["passed"] else FAILED)


def _measured(
    name: str, scale: str, repeats: int, data_folder: Path | None, to: Path, time_s: float | None, *, quiet: bool
) -> result.Document:
    valid = (*scenarios.names(), *single.NAMES)
    if name not in valid:
        message, remedy = f"Unknown bench '{name}'.", f"Choose one of: {', '.join(valid)}."
        raise BadInput.of("Bench", field="NAME", message=message, remedy=remedy)
    in_time = f" --time-s {time_s:g}" if time_s else ""
    command = f"python -m tools.bench {name} --scale {scale} --repeats {repeats}{in_time}"
    to.mkdir(parents=True, exist_ok=True)
    if name in scenarios.names():
        scenario, folder = scenarios.scenario(name, scale), data.folder_of(data_folder)
        return _workload(scenario, folder, to, command, repeats, time_s, quiet=quiet)
    slot = "cuda:0" if name in single.ON_GPU and Path("/dev/nvidiactl").exists() else "cpu"
    if data_folder is not None:
        os.environ[data.ENVIRONMENT] = str(data_folder)
    asked = result.environment(f"python -m tools.bench {name} --repeats {repeats}{in_time}", slot)
    found = single.document(name, repeats, asked, time_s)
    _keep(to, found)
    return found


def _workload(
    scenario: scenarios.Scenario,
    folder: Path,
    to: Path,
    command: str,
    repeats: int,
    time_s: float | None,
    *,
    quiet: bool,
) -> result.Document:
    """Measure it; the result file is written anew after each repeat, so that a kill leaves those that were finished."""
    data.require(folder, (task.data for case in scenario.cases for task in case.tasks))
    asked = result.environment(command, "cuda:0" if scenario.device == "cuda" else "cpu")
    found: result.Document | None = None
    with _progress(quiet) as on_progress, _workplace() as workplace:
        for measured in runner.measure(
            scenario, folder, workplace, repeats=repeats, time_s=time_s, on_progress=on_progress
        ):
            found = result.document(scenario, measured, asked, repeats)
            _keep(to, found)
    if found is None:
        raise ToolFailed("No repeat finished in the time. Raise --time-s or leave it out.")
    return found


@contextmanager
def _workplace() -> Iterator[Path]:
    """A folder for files and home; a database named by the environment is not touched."""
    database = os.environ.pop("UNIFIEDNN_DATABASE_URL", None)
    folder = Path(tempfile.mkdtemp(prefix="unifiednn-bench-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if database is not None:
            os.environ["UNIFIEDNN_DATABASE_URL"] = database


@contextmanager
def _progress(quiet: bool) -> Iterator[Any]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=err, disable=quiet or not err.is_terminal) as progress:
        arms, now = progress.add_task("arms", total=1), progress.add_task("", total=100)

        def on_progress(news: runner.BenchProgress) -> None:
            progress.update(arms, completed=news.done, total=news.arms)
            progress.update(now, completed=round(100 * news.share), description=news.text)

        yield on_progress


def _keep(folder: Path, found: result.Document) -> None:
    """Write the result file, and the tables on the page beside the folder where there is one."""
    write_text(folder / f"{found['bench']}-{found['scale']}.json", json.dumps(found, indent=2) + "\n")
    report.render(folder)
    if (place := folder.parent / techniques_page.PAGE).is_file():
        place.write_text(techniques_page.page(folder), encoding="utf-8")


def _show(found: result.Document) -> None:
    file = f"{found['bench']}-{found['scale']}.json"
    out.print(report.section(file, found, ()), markup=False, highlight=False, soft_wrap=True)
    verdict = "All promises hold." if found["passed"] else "Not all promises hold."
    out.print(verdict, style="bold")
