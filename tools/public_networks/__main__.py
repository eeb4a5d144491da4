"""`python -m tools.public_networks FOLDER`: try public networks, and write what came of it.

FOLDER holds clones of the repositories that `--sources` lists. Packages are used where they are installed. This runs
the code of all of them. Networks are packed into a temporary folder and deleted; nothing of them is kept but hashes.
"""

import json
import sys
from pathlib import Path
from typing import Annotated

import torch
import typer

from tools.bench import report, result
from tools.public_networks import stand_ins, table
from tools.public_networks.declared import NETWORKS, SOURCES
from tools.public_networks.trial import tried
from unifiednn_core.base.files import write_text

RESULT = Path("docs/results/public-networks-cpu.json")


def main(
    clones: Annotated[Path, typer.Argument(help="Folder with the clones.", metavar="FOLDER")] = Path(),
    only: Annotated[str, typer.Option(help="Only networks with one of these in source or name; commas between.")] = "",
    to: Annotated[Path, typer.Option("--out", help="Result file; replaces the rows of what is tried.")] = RESULT,
    sources: Annotated[bool, typer.Option("--sources", help="List what to clone, and nothing else.")] = False,
) -> None:
    """Pack public networks, train them in hybrids, and compare with plain loops over their authors' Python code."""
    if sources:
        for source in SOURCES:
            sys.stdout.write(f"{source.url} {source.commit}\n" if source.commit else f"pip install {source.name}\n")
        return
    chosen = [one for one in NETWORKS if any(text in f"{one.source.name} {one.name}" for text in only.split(","))]
    absent = sorted({one.source.url for one in chosen if not one.source.folder(clones).is_dir()})
    if absent or not chosen:
        sys.stderr.write(f"Clone first: {', '.join(absent)}.\n" if absent else f"No network is called '{only}'.\n")
        raise typer.Exit(2)
    torch.set_num_threads(1)
    stand_ins.install()
    stand_ins.warm_up()
    asked = result.environment(f"python -m tools.public_networks FOLDER{f' --only {only!r}' if only else ''}", "cpu")
    rows = {row["network"]: row for row in table.rows_of(to)}
    for done in tried(chosen, clones.resolve()):
        for row in done:
            rows[row["network"]] = {**row, "commit": asked["commit"]}
            sys.stdout.write(f"{table.line(row)}\n")
            sys.stdout.flush()
        ordered = [rows[network.name] for network in NETWORKS if network.name in rows]
        write_text(to, json.dumps(table.document(ordered, asked), indent=2) + "\n")
    report.render(to.parent)


typer.run(main)
