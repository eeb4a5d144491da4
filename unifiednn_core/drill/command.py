"""`unifiednn drill`: the fault drill in a terminal. Exit codes: 0 everything as promised, 1 not, 2 bad input."""

import json
import os
import shutil
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from unifiednn_core.drill import report
from unifiednn_core.drill.lanes import carry_out
from unifiednn_core.drill.machine import commit, machine
from unifiednn_core.drill.outcome import Outcome
from unifiednn_core.errors import UnifiedNNError
from unifiednn_core.home import Home

PAGE, RESULT = "RELIABILITY.md", Path("results", "drill.json")
DONE, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130

out, err = Console(), Console(stderr=True)


def drill(
    kills: Annotated[int, typer.Option(help="End once so many processes were killed.", min=1)] = 100,
    seed: Annotated[int, typer.Option(help="What happens when follows from it.")] = 0,
    processes: Annotated[int, typer.Option(help="Trainings at a time.", min=1, max=64)] = os.cpu_count() or 1,
    home: Annotated[
        Path | None, typer.Option(help="Empty folder for the homes of the drill; without it a temporary one.")
    ] = None,
    write: Annotated[Path | None, typer.Option(help="Folder of RELIABILITY.md, to record the result in.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")] = False,
) -> None:
    """Kill training again and again on this machine, and show what is lost. Your own home is left alone."""
    _refuse_what_cannot_be_done(home, write)
    folder = home or Path(tempfile.mkdtemp(prefix="unifiednn-drill-"))
    folder.mkdir(parents=True, exist_ok=True)
    asked = {
        "command": f"unifiednn drill --kills {kills} --seed {seed} --processes {processes}",
        "commit": commit(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "machine": machine(),
    }
    begun_s = time.monotonic()
    try:
        outcome = _followed(folder.resolve(), seed, kills, processes, quiet=as_json)
    except KeyboardInterrupt:
        err.print("Interrupted; the drill is void.")
        shutil.rmtree(folder, ignore_errors=True)
        raise typer.Exit(INTERRUPTED) from None
    except UnifiedNNError as error:
        err.print(f"[bold red]error[/] {escape(str(error))}", soft_wrap=True)
        raise typer.Exit(FAILED) from None
    found = report.document(outcome, asked=asked, elapsed_s=time.monotonic() - begun_s)
    if write is not None:
        record(write, found)
    if as_json:
        sys.stdout.write(json.dumps(found, indent=2) + "\n")
    else:
        _show(found)
    if outcome.passed and home is None:
        shutil.rmtree(folder)
    raise typer.Exit(DONE if outcome.passed else FAILED)


def record(folder: Path, found: report.Document) -> None:
    """Write the result file, and the tables on the page beside it."""
    result, page = folder / RESULT, folder / PAGE
    result.parent.mkdir(exist_ok=True)
    result.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    page.write_text(report.with_table(page.read_text(encoding="utf-8"), found), encoding="utf-8")


def _refuse_what_cannot_be_done(home: Path | None, write: Path | None) -> None:
    """Before an hour is spent, and before anybody's runs are near processes that get killed."""
    wrong = None
    own = Home.default().root
    if home is not None and (own == home.resolve() or own in home.resolve().parents):
        wrong = f"--home: {home} is where your own runs are kept. Name another folder."
    elif home is not None and home.exists() and (not home.is_dir() or any(home.iterdir())):
        wrong = f"--home: {home} is no empty folder. Name one that is empty or new."
    elif write is not None and not (write / PAGE).is_file():
        wrong = f"--write: {write} holds no {PAGE}. Name the docs folder of a clone."
    if wrong is not None:
        err.print(f"[bold red]error[/] {escape(wrong)}", soft_wrap=True)
        raise typer.Exit(BAD_INPUT)


def _followed(folder: Path, seed: int, kills: int, lanes: int, *, quiet: bool) -> Outcome:
    """Carry it out, with a bar on a terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=err, disable=quiet or not err.is_terminal) as progress:
        bar = progress.add_task("the demo without faults", total=kills)

        def told(sums: Outcome) -> None:
            failing = f", {len(sums.problems)} problems" if sums.problems else ""
            progress.update(bar, completed=min(kills, sums.kills), description=f"kills{failing}")

        return carry_out(folder, seed=seed, kills=kills, lanes=lanes, told=told)


def _show(found: report.Document) -> None:
    for heads, rows in (
        (report.FAULT_HEADS, report.fault_rows(found)),
        (report.TIME_HEADS, report.time_rows(found)),
        (report.RESULT_HEADS, report.result_rows(found)),
    ):
        table = Table(*heads)
        for row in rows:
            table.add_row(*row)
        out.print(table)
    for problem in found["problems"]:
        out.print(escape(problem), soft_wrap=True)
    for place in found["kept"]:
        out.print(f"Look into {place}", soft_wrap=True)
    out.print("Everything is as promised." if found["passed"] else "Not everything is as promised.", style="bold")
