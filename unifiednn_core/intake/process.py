"""The work of the intake process: limits first, then reading, then taking files in."""

import os
import resource
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

import psutil

from unifiednn_core.errors import Finding
from unifiednn_core.home import Home
from unifiednn_core.intake import conversion
from unifiednn_core.intake.check import check
from unifiednn_core.intake.inspection import attempt, inspect_file, sha256_of
from unifiednn_core.intake.report import CheckReport, FileReport, ResolvedFile, SplitReport
from unifiednn_core.intake.split import split
from unifiednn_core.memory.budget import budget_of
from unifiednn_core.spec import RunSpec
from unifiednn_core.views.data import SplitPlan

CPU_LIMIT_S = 600
# Address space that torch's libraries take beside the memory that is really used.
LIBRARIES_BYTES = 16 * 1024**3
# Files that are mapped to be read count as memory of one's own, and so do stacks of threads.
MAPPED_BYTES = 4 * 1024**3
# torch probes the folder for temporary files when it builds an optimizer.
SCRATCH_BYTES = 1024**2


def limit_resources() -> None:
    """Bound what a file can cost: processor time, memory; no core dumps, no large file is written while reading.

    Of memory it gets what is free at its start, so that a network that asks for more is told so; where others take that
    meanwhile, the kernel ends this process before any that trains.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _lower(resource.RLIMIT_CPU, CPU_LIMIT_S)
    _lower(resource.RLIMIT_AS, psutil.virtual_memory().total + LIBRARIES_BYTES)
    _lower(resource.RLIMIT_DATA, (budget_of("cpu").free_bytes or 0) + MAPPED_BYTES)
    with suppress(OSError):  # no such file where there is no Linux
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    _let_write(False)


def run_inspect(path: Path, filename: str, convert_to: Path | None = None) -> FileReport:
    """Say what a file is; with `convert_to`, a data set that cannot be mapped is written there first."""
    if convert_to is None:
        return inspect_file(path, filename)
    needed, findings = attempt(lambda: conversion.is_needed(path), filename)
    if not needed and not findings:
        return inspect_file(path, filename)
    if not findings:
        _let_write(True)
        _, findings = attempt(lambda: conversion.convert(path, convert_to), filename)
    if not findings:
        return inspect_file(convert_to, filename).model_copy(update={"converted": True})
    size_bytes = path.stat().st_size
    return FileReport(kind="unknown", format="", sha256=sha256_of(path), size_bytes=size_bytes, findings=findings)


def run_split(path: Path, filename: str, plan: SplitPlan, home: Home) -> SplitReport:
    """Part a data set and keep both parts by their content."""
    _let_write(True)
    with tempfile.TemporaryDirectory(dir=home.quarantine) as name:
        parts, findings = attempt(lambda: split(path, plan, Path(name)), filename)
        if parts is None:
            return SplitReport(findings=findings)
        reports = {part: inspect_file(written, filename) for part, written in parts.items()}
        for part, written in parts.items():
            report = reports[part]
            _take_in(
                ResolvedFile(path=written, sha256=report.sha256, size_bytes=report.size_bytes, filename=filename), home
            )
    return SplitReport(train=reports["train"], test=reports["test"])


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
            files[written] = _admitted(file, home)
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


def _admitted(file: ResolvedFile, home: Home) -> ResolvedFile:
    """Take a file in, as a data set that can be mapped where it is one that cannot."""
    if not conversion.is_needed(file.path):
        path = _take_in(file, home)
        return file.model_copy(update={"path": path, "report": inspect_file(path, file.filename)})
    with tempfile.TemporaryDirectory(dir=home.create().quarantine) as name:
        converted = Path(name) / "converted"
        conversion.convert(file.path, converted)
        report = inspect_file(converted, file.filename)
        update = {"sha256": report.sha256, "size_bytes": report.size_bytes, "report": report}
        path = _take_in(file.model_copy(update={**update, "path": converted}), home)
    return file.model_copy(update={**update, "path": path})


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
