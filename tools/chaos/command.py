"""`python -m tools.chaos`: the chaos test in a terminal. Exit codes: 0 all promises held, 1 not, 2 bad input."""

import json
import os
import shutil
import sys
import tempfile
import time
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tools.chaos import report
from tools.chaos.cluster.drill import OfManyHosts
from tools.chaos.cluster.plan import DatabaseName
from tools.chaos.judge import Outcome
from tools.chaos.plan import ROUNDS
from tools.chaos.pool import OfManyPeople
from tools.chaos.runner import Drill, OfOneRun, Planned, run_exercises
from tools.machine import commit, machine
from unifiednn_core.base.errors import UnifiedNNError
from unifiednn_core.base.paths import Home

RESULT, POOLED_RESULT, CLUSTER_RESULT = "chaos.json", "chaos_pooled.json", "drill-cluster-{}.json"
DONE, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130

out, err = Console(), Console(stderr=True)


def chaos(
    kills: Annotated[int, typer.Option(help="Stop after this many kills.", min=1)] = 100,
    seed: Annotated[int, typer.Option(help="Seed of the plan.")] = 0,
    rounds: Annotated[int, typer.Option(help="Workers per exercise that something happens to.", min=1)] = ROUNDS,
    processes: Annotated[int, typer.Option(help="Trainings at the same time.", min=1, max=64)] = os.cpu_count() or 1,
    pooled: Annotated[bool, typer.Option(help="Several people's submissions in shared hybrids.")] = False,
    cluster: Annotated[bool, typer.Option(help="Two hosts with an agent each, over one database.")] = False,
    database: Annotated[DatabaseName, typer.Option(help="Database of the cluster.")] = DatabaseName.SQLITE,
    minutes: Annotated[
        float | None, typer.Option(help="Begin nothing new after so long, and say how far it came.")
    ] = None,
    home: Annotated[
        Path | None, typer.Option(help="Empty folder for the homes of the test; default: a temporary one.")
    ] = None,
    write: Annotated[
        Path | None, typer.Option(help="Folder to write the result file into, such as docs/results.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")] = False,
) -> None:
    """Kill trainings on this machine again and again and count what is lost. Does not touch your own home."""
    _refuse_what_cannot_be_done(home, write)
    folder = home or Path(tempfile.mkdtemp(prefix="unifiednn-chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    asked = {
        "command": f"python -m tools.chaos {'--pooled ' * pooled}{f'--cluster --database {database.value} ' * cluster}"
        f"--kills {kills} --seed {seed} --rounds {rounds} --processes {processes}"
        + ("" if minutes is None else f" --minutes {minutes:g}"),
        "kills_asked": kills,
        "limit_minutes": minutes,
        "commit": commit(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "machine": machine(),
        **({"database": database.value} if cluster else {}),
    }
    begun_s = time.monotonic()
    follow = partial(_followed, folder.resolve(), seed, kills, rounds, processes, minutes, quiet=as_json)
    try:
        if cluster:
            with closing(OfManyHosts(database)) as of_hosts:
                outcome = follow(of_hosts)
        else:
            outcome = follow(OfManyPeople(rounds)) if pooled else follow(OfOneRun())
    except KeyboardInterrupt:
        err.print("Interrupted; this chaos test does not count.")
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
    """Write the result file; `python -m tools.generate_docs` makes a page of those in `docs/results`."""
    (folder / _result_of(found)).write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


def _result_of(found: report.Document) -> str:
    if "cluster" in found:
        return CLUSTER_RESULT.format(found["cluster"]["database"])
    return POOLED_RESULT if "pooled" in found else RESULT


def _refuse_what_cannot_be_done(home: Path | None, write: Path | None) -> None:
    """Check options before an hour is spent, and before any process is killed near a user's runs."""
    wrong = None
    own = Home.default().root
    if home is not None and (own == home.resolve() or own in home.resolve().parents):
        wrong = f"--home: {home} holds your own runs. Name another folder."
    elif home is not None and home.exists() and (not home.is_dir() or any(home.iterdir())):
        wrong = f"--home: {home} is not empty. Name an empty or new folder."
    elif write is not None and not write.is_dir():
        wrong = f"--write: {write} is no folder. Name docs/results of a clone."
    if wrong is not None:
        err.print(f"[bold red]error[/] {escape(wrong)}", soft_wrap=True)
        raise typer.Exit(BAD_INPUT)


def _followed(
    folder: Path,
    seed: int,
    kills: int,
    rounds: int,
    lanes: int,
    minutes: float | None,
    drill: Drill[Planned],
    *,
    quiet: bool,
) -> Outcome:
    """Carry it out, with a bar on a terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=err, disable=quiet or not err.is_terminal) as progress:
        bar = progress.add_task("without faults", total=kills)

        def on_progress(sums: Outcome) -> None:
            failing = f", {len(sums.problems)} problems" if sums.problems else ""
            progress.update(bar, completed=min(kills, sums.kills), description=f"kills{failing}")

        return run_exercises(
            folder,
            drill,
            seed=seed,
            kills=kills,
            rounds=rounds,
            lanes=lanes,
            on_progress=on_progress,
            limit_s=None if minutes is None else 60.0 * minutes,
        )


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
    out.print("All promises held." if found["passed"] else "Not all promises held.", style="bold")
