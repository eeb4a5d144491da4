"""Planted faults: whether the tests notice sixty one-line bugs. `python -m tools.faults [--only N]`.

Each line of `tools/faults.json` is a fault: a file, a piece of one of its lines, what a tired engineer could have
written instead, and the tests that should notice. They run on a copy of the last commit, never in this folder. The
result is `docs/results/planted-faults.json`; with `--only` nothing is written.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from tools.machine import commit, machine

ROOT = Path(__file__).resolve().parents[1]
FAULTS = ROOT / "tools" / "faults.json"
RESULT = ROOT / "docs" / "results" / "planted-faults.json"
PATIENCE_S = 300
ALL_PATIENCE_S = 1800
NOTICED, NOT_NOTICED, CANNOT_APPLY, CANNOT_RUN = "noticed", "not noticed", "cannot apply", "cannot run"
_MEANING = {0: NOT_NOTICED, 1: NOTICED, 2: NOTICED}
"""Of pytest's exit codes: passed, failed, and stopped by an error."""
Fault = Mapping[str, Any]


@contextmanager
def copied() -> Iterator[Path]:
    """Make a copy of the last commit, with the samples that are built and not committed."""
    with tempfile.TemporaryDirectory(prefix="faults-") as name:
        folder = Path(name) / "copy"
        git = ("git", "-C", str(ROOT), "worktree")
        subprocess.run([*git, "add", "--quiet", "--detach", str(folder), "HEAD"], check=True)
        try:
            shutil.copytree(ROOT / "sample_models", folder / "sample_models", dirs_exist_ok=True)
            yield folder
        finally:
            subprocess.run([*git, "remove", "--force", str(folder)], check=True)


def place_of(folder: Path, fault: Fault) -> Path | None:
    """The file whose text holds the piece once, which may have moved; None if there is none."""
    here = folder / str(fault["file"])
    sources = [path for room in ("unifiednn_core", "pages") for path in (folder / room).rglob("*.py")]
    holding = [path for path in sources if path.read_text(encoding="utf-8").count(fault["old"]) == 1]
    if here in holding:
        return here
    return holding[0] if len(holding) == 1 else None


def run_tests(folder: Path, tests: Sequence[str], patience_s: float = PATIENCE_S) -> tuple[int, str]:
    """Run tests on the copy; returns pytest's exit code, and the first test that failed."""
    there = [test for test in tests if (folder / test.partition("::")[0]).exists()]
    if not there:
        return 5, ""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *there]
    environment = os.environ | {"PYTHONPATH": str(folder)}
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=patience_s
        )
    except subprocess.TimeoutExpired:
        return 124, f"endless after {patience_s:g} s"
    failed = (line for line in done.stdout.splitlines() if line.startswith(("FAILED ", "ERROR ")))
    return done.returncode, next(failed, "").partition(" - ")[0].partition(" ")[2]


def tried(folder: Path, fault: Fault) -> tuple[str, str]:
    """Whether the tests notice a fault, and the first test that does."""
    path = place_of(folder, fault)
    if path is None:
        return CANNOT_APPLY, ""
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace(fault["old"], fault["new"]), encoding="utf-8")
    try:
        code, by = run_tests(folder, fault["tests"])
    finally:
        path.write_text(text, encoding="utf-8")
    return _MEANING.get(code, CANNOT_RUN), by


def main(only: Annotated[int | None, typer.Option(help="Number of one fault, from 1.")] = None) -> None:
    """Plant the faults one by one, and say which are noticed."""
    faults: list[Fault] = json.loads(FAULTS.read_text(encoding="utf-8"))
    chosen = [(number, fault) for number, fault in enumerate(faults, 1) if only in (None, number)]
    found = []
    with copied() as folder:
        tests = list(dict.fromkeys(test for _, fault in chosen for test in fault["tests"]))
        code, by = run_tests(folder, tests, ALL_PATIENCE_S)
        if code:
            raise SystemExit(f"Without a fault {by or 'a test'} fails (exit code {code}), so nothing can be said.")
        for number, fault in chosen:
            outcome, by = tried(folder, fault)
            typer.echo(f"{number:2} {fault['room']:10} {outcome:12} {fault['file']}: {fault['new']} {by}")
            found.append({"number": number, **fault, "outcome": outcome, "by": by})
    outcomes = Counter(one["outcome"] for one in found)
    typer.echo(", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common()))
    if only is None:
        head = {"command": "python -m tools.faults", "commit": commit(), "machine": machine(), "outcomes": outcomes}
        lines = ",\n".join(json.dumps(one) for one in found)
        RESULT.write_text(json.dumps(head)[:-1] + ', "faults": [\n' + lines + "\n]}\n", encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
