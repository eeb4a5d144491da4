"""Runs everything that needs a GPU within a time budget: `python -m tools.bench.gpu --budget-s N`.

For a machine with a CUDA GPU and torch, but no network: wheels and data come from the bundle that `bundle.py` made.
Only the standard library is imported here; tests and benches run as processes of their own. Each writes its
result file at once, so that nothing is lost when time runs out.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
import xml.etree.ElementTree as ElementTree
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
LOG = "gpu-path.json"
# Share of the remaining time that each may take; the most important comes first.
BENCHES: Mapping[str, float] = {
    "paper-vision": 0.35,
    "paper-mixed": 0.45,
    "figure-14": 0.35,
    "equal-small": 0.4,
    "paper-schedulers": 0.6,
    "sweep-32": 1.0,
}
BEFORE: Mapping[str, float] = {"gpu-probe": 0.15, "gpu-tests": 0.25, "replayed-steps": 0.2, "techniques": 0.25}
"""The same of what comes before the workloads."""
_IN_TIME = frozenset({"gpu-probe", "techniques"})
ENDING_S = 45.0
"""Extra seconds for a bench to end by itself."""
LEAST_S = 15.0
"""Nothing starts with less time left."""


@dataclass(frozen=True, slots=True)
class Step:
    """One process of the path."""

    name: str
    share: float
    command: tuple[str, ...]
    takes_time: bool
    """Whether it accepts `--time-s`."""


def steps(out: Path, data: Path, *, dry_run: bool, repeats: int, only: Sequence[str]) -> list[Step]:
    """All steps in their order: questions to the machine, tests, benches.

    A dry run asks the CPU, collects the tests and narrows the benches.
    """
    junit = out / "gpu-tests.xml"
    collect = ("--collect-only",) if dry_run else (f"--junitxml={junit}",)
    pytest = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "gpu", "tests/gpu", *collect)
    bench = (sys.executable, "-m", "tools.bench")
    probe, replays = (*bench, "gpu-probe", "--repeats", "1"), (*bench, "replayed-steps", "--repeats", str(repeats))
    before = {"gpu-probe": (*probe, "--out", str(out)), "gpu-tests": pytest}
    if not dry_run:
        before["replayed-steps"] = (*replays, "--scale", "paper", "--out", str(out))
        before["techniques"] = (
            *bench,
            "techniques",
            "--scale",
            "paper",
            "--repeats",
            "1",
            "--data",
            str(data),
            "--out",
            str(out),
        )
    found = [Step(name, BEFORE[name], command, name in _IN_TIME) for name, command in before.items()]
    scale = "cpu" if dry_run else "paper"
    for name, share in BENCHES.items():
        options = ("--scale", scale, "--repeats", str(repeats), "--data", str(data), "--out", str(out))
        found.append(Step(name, share, (*bench, name, *options), True))
    return [step for step in found if not only or step.name in only]


def unpack(wheels: Path, to: Path) -> None:
    """Unpack the bundle's wheels into a folder; without a bundle this Python is used as it is."""
    for wheel in sorted(wheels.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(to)
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    metadata = to / f"{project['name']}-{project['version']}.dist-info" / "METADATA"  # not installed here
    metadata.parent.mkdir()
    metadata.write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")


def carry_out(
    planned: Sequence[Step], out: Path, environment: Mapping[str, str], budget_s: float
) -> list[dict[str, object]]:
    """Run the steps within the time; the log is written anew after each."""
    began_s, log = time.monotonic(), []
    for step in planned:
        left_s = began_s + budget_s - time.monotonic()
        entry: dict[str, object] = {"step": step.name}
        if left_s < LEAST_S:
            entry |= {"outcome": "not started: no time left"}
        else:
            entry |= _run(step, left_s, environment)
        log.append(entry)
        _write(out / LOG, {"budget_s": budget_s, "steps": log})
        if step.name == "gpu-tests":
            _keep_tests(out)
    return log


def _run(step: Step, left_s: float, environment: Mapping[str, str]) -> dict[str, object]:
    cap_s = left_s * step.share if step.share < 1 else left_s
    inside_s = max(1.0, cap_s - ENDING_S)
    command = [*step.command, "--time-s", f"{inside_s:.0f}"] if step.takes_time else list(step.command)
    began_s = time.monotonic()
    process = subprocess.Popen(
        command, cwd=REPOSITORY, env=dict(environment), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        output, _ = process.communicate(timeout=cap_s)
        outcome = f"exit code {process.returncode}"
    except subprocess.TimeoutExpired:
        output, outcome = _ended(process), f"ended after {cap_s:.0f} s; finished repeats are kept"
    tail = output.strip().splitlines()[-30:]
    return {"outcome": outcome, "seconds": round(time.monotonic() - began_s, 1), "output": tail}


def _ended(process: subprocess.Popen[str]) -> str:
    """Interrupt it, then kill it."""
    for wish, patience_s in ((signal.SIGINT, ENDING_S), (signal.SIGKILL, None)):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, wish)
        with suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=patience_s)[0]
    return ""


def _keep_tests(out: Path) -> None:
    """Turn pytest's report into a result file."""
    junit = out / "gpu-tests.xml"
    if not junit.is_file():
        return
    cases = [
        {"test": case.get("name"), "seconds": float(case.get("time", 0)), "outcome": _outcome(case)}
        for case in ElementTree.parse(junit).iter("testcase")
    ]
    junit.unlink()
    _write(out / "gpu-tests.json", {"tests": cases, "passed": all(case["outcome"] == "passed" for case in cases)})


def _outcome(case: ElementTree.Element) -> str:
    for kind in ("failure", "error", "skipped"):
        found = case.find(kind)
        if found is not None:
            return f"{kind}: {found.get('message', '')[:500]}"
    return "passed"


def _write(path: Path, document: object) -> None:
    temporary = path.with_name(f".{path.name}.part")
    temporary.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    temporary.replace(path)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all steps; returns 0 if each ended by itself."""
    parser = argparse.ArgumentParser(prog="python -m tools.bench.gpu", description=__doc__)
    parser.add_argument("--budget-s", type=float, default=1500, help="seconds that all of it may take")
    parser.add_argument("--out", type=Path, default=Path("docs/results"), help="folder of the result files")
    parser.add_argument("--bundle", type=Path, default=Path(".gpu"), help="what `make gpu-bundle` prepared")
    parser.add_argument("--data", type=Path, help="folder with the data, instead of the bundle's")
    parser.add_argument("--repeats", type=int, default=3, help="of each bench, where they fit")
    parser.add_argument(
        "--only",
        nargs="*",
        default=[],
        choices=[*BEFORE, *BENCHES],
        help="these steps alone",
    )
    parser.add_argument("--dry-run", action="store_true", help="on a CPU: narrowed benches, tests only collected")
    asked = parser.parse_args(arguments)
    out = asked.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="unifiednn-gpu-") as packages:
        if not asked.dry_run:
            unpack(asked.bundle / "wheels", Path(packages))
        search_path = os.pathsep.join(filter(None, (packages, str(REPOSITORY), os.environ.get("PYTHONPATH"))))
        environment = os.environ | {"PYTHONPATH": search_path, "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
        if (asked.bundle / "COMMIT").is_file():
            environment["UNIFIEDNN_COMMIT"] = (asked.bundle / "COMMIT").read_text(encoding="utf-8").strip()
        data = (asked.data or asked.bundle / "data").resolve()
        planned = steps(out, data, dry_run=asked.dry_run, repeats=asked.repeats, only=asked.only)
        log = carry_out(planned, out, environment, asked.budget_s)
    for entry in log:
        sys.stdout.write(f"{entry['step']}: {entry['outcome']}\n")
    return 0 if all(entry["outcome"] in ("exit code 0", "exit code 1") for entry in log) else 1


if __name__ == "__main__":
    sys.exit(main())
