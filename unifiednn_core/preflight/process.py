"""The work of one intake job: limits first, then reading, then copying files into the home."""

import json
import os
import resource
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

import psutil
import torch
from pydantic import BaseModel

from unifiednn_core.base.errors import Finding
from unifiednn_core.base.files import sync
from unifiednn_core.base.paths import Home
from unifiednn_core.data import conversion
from unifiednn_core.data.split import split
from unifiednn_core.data.values import SplitPlan
from unifiednn_core.machine.budget import budget_of
from unifiednn_core.preflight.check import check
from unifiednn_core.preflight.inspection import Reader, attempt, inspect_file, sha256_of
from unifiednn_core.preflight.report import (
    CheckReport,
    FileReport,
    InspectJob,
    ResolvedFile,
    SpecJob,
    SplitJob,
    SplitReport,
)
from unifiednn_core.spec.run import parse_run

CPU_LIMIT_S = 600
# More for each further sub-model.
CPU_LIMIT_EACH_S = 300
# Address space that torch's libraries take beside the memory that is really used.
LIBRARIES_BYTES = 16 * 1024**3
# Mapped files and the stacks of threads count as the process's own memory.
MAPPED_BYTES = 4 * 1024**3
# torch probes the folder for temporary files when it builds an optimizer.
SCRATCH_BYTES = 1024**2


def limit_resources(submodels: int = 1) -> None:
    """Bound what a job can cost: processor time, memory, no core dumps, no large file written while reading.

    It may use the memory that is free now, so a network that asks for more gets a finding. Where other processes take
    that memory meanwhile, the kernel ends this process before any that trains.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _lower(resource.RLIMIT_CPU, CPU_LIMIT_S + CPU_LIMIT_EACH_S * (submodels - 1))
    _lower(resource.RLIMIT_AS, psutil.virtual_memory().total + LIBRARIES_BYTES)
    _lower(resource.RLIMIT_DATA, (budget_of("cpu").free_bytes or 0) + MAPPED_BYTES)
    with suppress(OSError):  # no such file where there is no Linux
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    _let_write(False)


def work(job: InspectJob | SplitJob | SpecJob) -> BaseModel:
    """Do a job in this process, which is for this job alone, and return its report."""
    if isinstance(job, SpecJob):
        spec, home = parse_run(json.loads(job.spec)), Home(job.home)
        limit_resources(len(spec.submodels))
        idle_cores = len(os.sched_getaffinity(0)) - round(os.getloadavg()[0])
        torch.set_num_threads(max(1, idle_cores))
        reader = Reader()
        report = check(spec, job.base, home, reader)
        return report if report.has_errors or not job.admit else _admitted(report, home, reader)
    limit_resources()
    if isinstance(job, SplitJob):
        return run_split(job.path, job.filename, job.plan, Home(job.home))
    return run_inspect(job.path, job.filename, job.convert_to)


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
    """Split a data set and keep both parts by their content."""
    _let_write(True)
    with tempfile.TemporaryDirectory(dir=home.quarantine) as name:
        parts, findings = attempt(lambda: split(path, plan, Path(name)), filename)
        if parts is None:
            return SplitReport(findings=findings)
        reports = {part: inspect_file(written, filename) for part, written in parts.items()}
        for part, written in parts.items():
            _copy_in(written, reports[part].sha256, home)
    return SplitReport(train=reports["train"], test=reports["test"])


def _admitted(report: CheckReport, home: Home, reader: Reader) -> CheckReport:
    """Copy every file of a checked spec to its place by content."""
    _let_write(True)
    findings, files = list(report.findings), dict(report.files)
    for written, file in report.files.items():
        try:
            files[written] = _stored(file, home, reader)
        except OSError as error:
            message = f"The file could not be copied into {home.files}: {error.strerror or error}."
            remedy = "Make room or correct the permissions there, then submit again."
            findings.append(Finding(title="File not stored", field=written, message=message, remedy=remedy))
    return report.model_copy(update={"files": files, "findings": tuple(findings)})


def _stored(file: ResolvedFile, home: Home, reader: Reader) -> ResolvedFile:
    """Copy a file into the home; a data set that cannot be mapped is converted on the way."""
    if file.path == home.file(file.sha256):
        return file
    if not conversion.is_needed(file.path):
        path = _copy_in(file.path, file.sha256, home)
        return file.model_copy(update={"path": path, "report": inspect_file(path, file.filename, reader)})
    with tempfile.TemporaryDirectory(dir=home.create().quarantine) as name:
        converted = Path(name) / "converted"
        conversion.convert(file.path, converted)
        report = inspect_file(converted, file.filename)
        path = _copy_in(converted, report.sha256, home)
    update = {"path": path, "sha256": report.sha256, "size_bytes": report.size_bytes, "report": report}
    return file.model_copy(update=update)


def _copy_in(path: Path, sha256: str, home: Home) -> Path:
    """Copy a file under the hash of its content; it appears there whole or not at all."""
    place = home.file(sha256)
    if place.is_file() and place.stat().st_size == path.stat().st_size:
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=".", dir=place.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as target, path.open("rb") as source:
            shutil.copyfileobj(source, target, 1024**2)
            target.flush()
            os.fsync(target.fileno())
        if sha256_of(temporary) != sha256:
            raise OSError("it changed while it was being read")
        temporary.replace(place)
        sync(place.parent)
    finally:
        temporary.unlink(missing_ok=True)
    return place


def _lower(limit: int, value: int) -> None:
    _, hard = resource.getrlimit(limit)
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(limit, (value, value))


def _let_write(allowed: bool) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard if allowed else SCRATCH_BYTES, hard))
