"""`python -m tools.bench`: one bench in a terminal, and its result as a file.

Exit codes: 0 all promises hold, 1 one does not or the bench failed, 2 bad input, 130 interrupted.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from tools.bench import data, report, result, runner, scenarios
from tools.machine import ToolFailed
from unifiednn_core.base.errors import BadInput, UnifiedNNError
from unifiednn_core.base.files import write_text

DONE, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130
RESULTS = Path("bench-results")
PROGRAMS = ("engine-overhead", "first-light", "ray", "start", "techniques")
"""Benches that are one program each, which may load torch; all others are workloads."""
NAMES = (*scenarios.NAMES, *PROGRAMS)
PATIENCE_S = 3600
_REPOSITORY = Path(__file__).resolve().parents[2]

out, err = Console(), Console(stderr=True)


def bench(
    name: Annotated[str, typer.Argument(help=f"One of: {', '.join(NAMES)}.")],
    scale: Annotated[str, typer.Option(help="cpu: narrowed, minutes; paper: full size, on a GPU.")] = "cpu",
    repeats: Annotated[int, typer.Option(help="Repeats of each arm.", min=1, max=100)] = 5,
    data_folder: Annotated[
        Path | None, typer.Option("--data", help=f"Folder with the data; default: {data.ENVIRONMENT}.")
    ] = None,
    to: Annotated[Path, typer.Option("--out", help="Folder to write the result file into.")] = RESULTS,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")] = False,
) -> None:
    """Measure hybrids against plain PyTorch, in a temporary home. Nothing else should run on the machine."""
    try:
        if name not in NAMES:
            message, remedy = f"Unknown bench '{name}'.", f"Choose one of: {', '.join(NAMES)}."
            raise BadInput.of("Bench", field="NAME", message=message, remedy=remedy)
        command = f"python -m tools.bench {name} --scale {scale} --repeats {repeats}"
        if name in PROGRAMS:
            found = _program(name, repeats, result.environment(command, "cpu"))
            _keep(to, found)
        else:
            found = _workload(name, scale, repeats, data_folder, command, lambda document: _keep(to, document))
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
        out.print(report.section(found), markup=False, highlight=False, soft_wrap=True)
        out.print("All promises hold." if found["passed"] else "Not all promises hold.", style="bold")
    raise typer.Exit(DONE if found["passed"] else FAILED)


def _workload(
    name: str, scale: str, repeats: int, named: Path | None, command: str, keep: Callable[[result.Document], None]
) -> result.Document:
    """Measure it; keep the result anew after each repeat, so that a kill leaves those that were finished."""
    scenario, folder = scenarios.scenario(name, scale), data.folder_of(named)
    data.require(folder, (task.data for case in scenario.cases for task in case.tasks))
    asked = result.environment(command, "cuda:0" if scenario.device == "cuda" else "cpu")
    found: result.Document = {}
    with (
        tempfile.TemporaryDirectory(prefix="unifiednn-bench-", ignore_cleanup_errors=True) as place,
        err.status("") as status,
    ):

        def on_progress(text: str, share: float) -> None:
            status.update(f"{share:.0%} {text}")

        for measured in runner.measure(scenario, folder, Path(place), repeats=repeats, on_progress=on_progress):
            found = result.document(scenario, measured, asked, repeats)
            keep(found)
    return found


def _program(name: str, repeats: int, asked: result.Document) -> result.Document:
    """Measure one of `PROGRAMS` in a process of its own. Raises `ToolFailed`."""
    command = [sys.executable, "-m", f"tools.bench.{name.replace('-', '_')}", str(repeats)]
    search_path = os.pathsep.join(filter(None, (str(_REPOSITORY), os.environ.get("PYTHONPATH"))))
    environment = os.environ | {"OMP_NUM_THREADS": "1", "CUBLAS_WORKSPACE_CONFIG": ":4096:8", "PYTHONPATH": search_path}
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S, env=environment)
        found: result.Document = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        log = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        raise ToolFailed(f"{name} could not be measured: {log[-1] if log else error}.") from error
    counts = {"threads": 1, "repeats_asked": repeats, "repeats": repeats, "complete": True}
    return {"bench": name, "scale": "cpu", **asked, **counts, "thresholds": [], **found}


def _keep(folder: Path, found: result.Document) -> None:
    """Write the result file, and the tables on the page beside the folder where there is one."""
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / f"{found['bench']}-{found['scale']}.json", json.dumps(found, indent=2) + "\n")
    report.render(folder)
