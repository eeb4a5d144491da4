"""`python -m tools.chaos`. Exit codes: 0 all promises held, 1 not."""

import json
import shutil
import tempfile
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from tools.chaos.drill import drill
from tools.machine import commit, machine


def chaos(
    kills: Annotated[int, typer.Option(help="Stop after this many kills.", min=1)] = 100,
    seed: Annotated[int, typer.Option(help="Seed of what happens.")] = 0,
    ray: Annotated[bool, typer.Option("--ray", help="On two Ray nodes on this machine, too.")] = False,
    write: Annotated[Path | None, typer.Option(help="Folder for the result.", exists=True, file_okay=False)] = None,
) -> None:
    """Kill the processes of a server again and again and count what is lost. Does not touch your own home."""
    folder, begun_s = Path(tempfile.mkdtemp(prefix="drill-")), time.monotonic()
    head = {
        "command": f"python -m tools.chaos --kills {kills} --seed {seed}{' --ray' * ray}",
        "commit": commit(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "machine": machine(),
        "versions": {name: version(name) for name in ("unifiednn", *["ray"] * ray)},
    }
    outcome = drill(folder, kills=kills, seed=seed, ray=ray)
    found = head | {"seconds": round(time.monotonic() - begun_s, 1)} | vars(outcome)
    if write is not None:
        (write / ("drill-ray.json" if ray else "drill.json")).write_text(json.dumps(found) + "\n", encoding="utf-8")
    for finding in outcome.findings:
        typer.echo(finding)
    if outcome.findings:
        typer.echo(f"Not all promises held. Look into {folder}.", err=True)
        raise typer.Exit(1)
    shutil.rmtree(folder)


if __name__ == "__main__":
    typer.run(chaos)
