"""The work of the intake process: limits first, then reading, then taking files in."""

import os
import resource
import shutil
import tempfile
from pathlib import Path

import psutil

from unifiednn_core.errors import Finding
from unifiednn_core.home import Home
from unifiednn_core.intake.check import check
from unifiednn_core.intake.inspection import inspect_file, sha256_of
from unifiednn_core.intake.report import CheckReport, FileReport, ResolvedFile
from unifiednn_core.spec import RunSpec

CPU_LIMIT_S = 600
# Address space that torch's libraries take beside the memory that is really used.
LIBRARIES_BYTES = 16 * 1024**3
# torch probes the folder for temporary files when it builds an optimizer.
SCRATCH_BYTES = 1024**2


def limit_resources() -> None:
    """Bound what a file can cost: processor time, memory; no core dumps, no large file is written while reading."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _lower(resource.RLIMIT_CPU, CPU_LIMIT_S)
    _lower(resource.RLIMIT_AS, psutil.virtual_memory().total + LIBRARIES_BYTES)
    _let_write(False)


def run_inspect(path: Path, filename: str) -> FileReport:
    """Say what a file is."""
    return inspect_file(path, filename)


def run_check(spec: RunSpec, base: Path, home: Home) -> CheckReport:
    """Hold a spec against its files."""
    return check(spec, base, home)


def run_admit(spec: RunSpec, base: Path, home: Home) -> CheckReport:
    """Check, then copy every file to its place by content; nothing is copied where there is an error."""
    report = check(spec, base, home)
    if report.has_errors:
        return report
    _let_write(True)
    findings: list[Finding] = []
    files = dict(report.files)
    for written, file in report.files.items():
        try:
            path = _take_in(file, home)
            files[written] = file.model_copy(update={"path": path, "report": inspect_file(path, file.filename)})
        except OSError as error:
            findings.append(
                Finding(
                    title="File not stored",
                    field=written,
                    message=f"The file could not be taken into {home.files}: {error.strerror or error}.",
                    remedy="Make room or correct the permissions there, then submit again.",
                )
            )
    return report.model_copy(update={"files": files, "findings": (*report.findings, *findings)})


def _take_in(file: ResolvedFile, home: Home) -> Path:
    """Copy a file under the hash of its content; it appears there whole or not at all."""
    place = home.file(file.sha256)
    if place.is_file() and place.stat().st_size == file.size_bytes:
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=".", dir=place.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as target, file.path.open("rb") as source:
            shutil.copyfileobj(source, target, 1024**2)
            target.flush()
            os.fsync(target.fileno())
        if sha256_of(temporary) != file.sha256:
            raise OSError("it changed while it was being read")
        temporary.replace(place)
        _sync_folder(place.parent)
    finally:
        temporary.unlink(missing_ok=True)
    return place


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _lower(limit: int, value: int) -> None:
    _, hard = resource.getrlimit(limit)
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(limit, (value, value))


def _let_write(allowed: bool) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard if allowed else SCRATCH_BYTES, hard))
