"""The caller's side of the intake process. No torch here: the server imports it."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from unifiednn_core.errors import BadInput, IntakeFailed
from unifiednn_core.home import Home
from unifiednn_core.intake.report import CheckReport, FileReport, SplitReport
from unifiednn_core.spec import RunSpec
from unifiednn_core.views.data import SplitPlan

PATIENCE_S = 180.0
_PACKAGE_PARENT = Path(__file__).resolve().parents[2]
Report = TypeVar("Report", bound=BaseModel)


def inspect(path: Path, filename: str, *, convert_to: Path | None = None, patience_s: float = PATIENCE_S) -> FileReport:
    """Say what a file is; with `convert_to`, a data set that cannot be mapped is written there, and that is reported.

    Raises `BadInput` where there is no such file, `IntakeFailed` where the process dies or takes longer than
    `patience_s`.
    """
    if not path.is_file():
        raise BadInput.of(
            "File not found", field=filename, message=f"There is no file {path}.", remedy="Correct the path."
        )
    converting = [] if convert_to is None else [f"--convert-to={convert_to.resolve()}"]
    return _run(FileReport, ["inspect", str(path.resolve()), f"--filename={filename}", *converting], "", patience_s)


def split(path: Path, filename: str, plan: SplitPlan, home: Home, *, patience_s: float = PATIENCE_S) -> SplitReport:
    """Part a data set in two, which are kept in `home` by their content; raises `IntakeFailed`."""
    arguments = ["split", str(path.resolve()), f"--filename={filename}", f"--home={home.root.resolve()}"]
    return _run(SplitReport, arguments, plan.model_dump_json(), patience_s)


def check(spec: RunSpec, base: Path, home: Home, *, patience_s: float = PATIENCE_S) -> CheckReport:
    """Hold a spec against its files; raises `IntakeFailed`."""
    return _run(CheckReport, ["check", *_places(base, home)], spec.to_json(), patience_s)


def admit(spec: RunSpec, base: Path, home: Home, *, patience_s: float = PATIENCE_S) -> CheckReport:
    """Check, and take the files into `home` where no error was found; raises `IntakeFailed`."""
    return _run(CheckReport, ["admit", *_places(base, home)], spec.to_json(), patience_s)


def _places(base: Path, home: Home) -> list[str]:
    return [f"--base={base.resolve()}", f"--home={home.root.resolve()}"]


def _run(report: type[Report], arguments: Sequence[str], document: str, patience_s: float) -> Report:
    command = [sys.executable, "-m", "unifiednn_core.intake", *arguments]
    search_path = os.pathsep.join(filter(None, (str(_PACKAGE_PARENT), os.environ.get("PYTHONPATH"))))
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": search_path, "CUDA_VISIBLE_DEVICES": ""}
    try:
        done = subprocess.run(
            command, input=document, capture_output=True, text=True, timeout=patience_s, env=environment, check=False
        )
    except subprocess.TimeoutExpired:
        raise IntakeFailed(f"Reading the files took longer than {patience_s:g} s. Try smaller files.") from None
    except OSError as error:
        raise IntakeFailed(f"The process that reads files could not be started: {error.strerror}.") from error
    if done.returncode != 0:
        raise IntakeFailed(
            f"The process that reads files ended with code {done.returncode}{_last_line(done.stderr)}. "
            "A file may need more memory or time than is allowed."
        )
    try:
        return report.model_validate_json(done.stdout)
    except ValidationError as error:
        raise IntakeFailed(f"The process that reads files gave no report{_last_line(done.stderr)}.") from error


def _last_line(log: str) -> str:
    lines = log.strip().splitlines()
    return f" ({lines[-1][:300]})" if lines else ""
