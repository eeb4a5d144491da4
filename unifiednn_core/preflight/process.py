"""The work of one intake job: no network, limits, then reading, then moving converted or split data into place."""

import ctypes
import json
import os
import resource
import socket
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import psutil
import torch
from pydantic import BaseModel

from unifiednn_core.base.files import file_sha256, move
from unifiednn_core.base.paths import Home
from unifiednn_core.base.units import GIB
from unifiednn_core.data import conversion
from unifiednn_core.data.conversion import split
from unifiednn_core.data.values import AS_STORED, ImportOptions, SplitPlan
from unifiednn_core.machine.budget import budget_of
from unifiednn_core.preflight.certify import certify
from unifiednn_core.preflight.check import DRY_RUN_CPU_S, MEASURE_CPU_S, check
from unifiednn_core.preflight.inspection import attempt, inspect_file
from unifiednn_core.preflight.kept_check import files_of, place_of
from unifiednn_core.preflight.oracle import ask_torch
from unifiednn_core.preflight.report import (
    JOBS,
    PROGRESS,
    CertifyJob,
    CheckProgress,
    FileReport,
    Job,
    OracleJob,
    SpecJob,
    SplitJob,
    SplitReport,
    Tell,
    untold,
)
from unifiednn_core.spec.devices import CPU
from unifiednn_core.spec.run import parse_run

# Processor time for reading files: a flat part, and more by their size (decoding pictures takes most).
READING_CPU_S = 600
READING_CPU_S_PER_GIB = 600
# Address space of torch's libraries, in addition to the memory that is really used.
LIBRARIES_BYTES = 16 * 1024**3
# Stacks of threads count as the process's own memory.
STACKS_BYTES = 4 * 1024**3
# So does a mapped file, although its pages can be dropped at any time. Readers map it anew while a mapping is there.
MAPPINGS = 3
# torch probes the folder for temporary files when it builds an optimizer.
SCRATCH_BYTES = 1024**2
# Certificates are made while others train; a niceness of 10 leaves them nine tenths of a core that both want.
CERTIFIER_NICENESS = 10

_NEW_USERS, _NEW_NETWORK = 0x10000000, 0x40000000


def serve(channel: socket.socket, _handles: list[int]) -> int:
    """Do the job that the caller names, in a fork of the template without network; send the progress and the report."""

    def tell(progress: CheckProgress) -> None:
        channel.sendall(PROGRESS + progress.model_dump_json().encode() + b"\n")

    _leave_the_network()
    with channel.makefile("rb") as lines:
        job = JOBS.validate_json(lines.readline())
    channel.sendall(work(job, tell).model_dump_json().encode())
    return 0


def _leave_the_network() -> None:
    """Leave the host's network if the kernel allows it; a reader needs none."""
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.geteuid(), os.getegid()
    if user == 0:
        libc.unshare(_NEW_NETWORK)
    elif libc.unshare(_NEW_USERS | _NEW_NETWORK) == 0:
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            Path("/proc/self", name).write_text(text, encoding="ascii")


def limit_resources(files_bytes: int = 0, submodels: int = 0, *, maps_gpu: bool = False) -> None:
    """Limit processor time and memory, and forbid core dumps and, while reading, large files.

    `files_bytes` is the size of all files of the job, `submodels` is how many networks it tries. The job may use the
    memory that is free now, so a network that asks for more gets a finding. If other processes take that memory
    meanwhile, the kernel ends this process before any that trains. With `maps_gpu` addresses are not limited: CUDA
    reserves more of them than the machine has memory.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    reading_s = READING_CPU_S + READING_CPU_S_PER_GIB * files_bytes / GIB
    _lower(resource.RLIMIT_CPU, int(reading_s + submodels * (DRY_RUN_CPU_S + MEASURE_CPU_S)))
    mapped_bytes = MAPPINGS * files_bytes
    if not maps_gpu:
        _lower(resource.RLIMIT_AS, psutil.virtual_memory().total + LIBRARIES_BYTES + mapped_bytes)
        _lower(resource.RLIMIT_DATA, (budget_of("cpu").free_bytes or 0) + STACKS_BYTES + mapped_bytes)
    with suppress(OSError):  # only Linux has this file
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    _let_write(False)


def work(job: Job, tell: Tell = untold) -> BaseModel:
    """Do a job, the only one of this process, and return its report; `tell` hears of the progress of a check."""
    if isinstance(job, SpecJob):
        spec, home = parse_run(json.loads(job.spec)), Home(job.home)
        files_bytes = _bytes_of(place_of(name, job.base, home) for part in spec.submodels for name in files_of(part))
        limit_resources(files_bytes, len(spec.submodels))
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) - round(os.getloadavg()[0])))  # the idle cores
        return check(spec, job.base, home, tell)
    if isinstance(job, OracleJob):
        limit_resources(_bytes_of([job.model, job.train_data]))
        _let_write(True)
        return ask_torch(job)
    if isinstance(job, CertifyJob):
        files = (path for path in (job.archive, job.upload, job.probes, job.data) if path is not None)
        limit_resources(_bytes_of(files), maps_gpu=job.device != CPU)
        _let_write(True)
        os.nice(CERTIFIER_NICENESS)
        return certify(job)
    limit_resources(_bytes_of([job.path]))
    if isinstance(job, SplitJob):
        return run_split(job.path, job.filename, job.plan, Home(job.home))
    return run_inspect(
        job.path, job.filename, job.convert_to, job.options, None if job.home is None else Home(job.home)
    )


def run_inspect(
    path: Path,
    filename: str,
    convert_to: Path | None = None,
    options: ImportOptions = AS_STORED,
    home: Home | None = None,
) -> FileReport:
    """Describe a file; with `convert_to`, a data set that cannot be mapped is written there first.

    Of a file with several parts, the first is described, and the others in its report. Files of the library that the
    options name are in `home`.
    """
    if convert_to is None:
        return inspect_file(path, filename)

    def converted() -> dict[str, Path] | None:
        settled = conversion.settled(path, filename, options)
        if not conversion.is_needed(path, settled):
            return None
        _let_write(True)
        return conversion.convert(path, convert_to, settled, None if home is None else home.file)

    parts, findings = attempt(converted, filename)
    if parts is None and not findings:
        return inspect_file(path, filename)
    if not findings:
        reports = [
            inspect_file(written, filename).model_copy(update={"converted": True, "part": part})
            for part, written in (parts or {}).items()
        ]
        problems = tuple(finding for report in reports for finding in report.findings)
        return reports[0].model_copy(update={"others": tuple(reports[1:]), "findings": problems})
    size_bytes = path.stat().st_size
    return FileReport(kind="unknown", format="", sha256=file_sha256(path), size_bytes=size_bytes, findings=findings)


def run_split(path: Path, filename: str, plan: SplitPlan, home: Home) -> SplitReport:
    """Split a data set and keep both parts by their content."""
    _let_write(True)
    with tempfile.TemporaryDirectory(dir=home.quarantine) as name:
        parts, findings = attempt(lambda: split(path, plan, Path(name)), filename)
        if parts is None:
            return SplitReport(findings=findings)
        reports = {part: inspect_file(written, filename) for part, written in parts.items()}
        for part, written in parts.items():
            move(written, home.file(reports[part].sha256))
    return SplitReport(train=reports["train"], test=reports["test"])


def _bytes_of(files: Iterable[Path]) -> int:
    """Size of all files together; one that is missing is told later."""
    total_bytes = 0
    for path in set(files):
        with suppress(OSError, ValueError):
            total_bytes += path.stat().st_size
    return total_bytes


def _lower(limit: int, value: int) -> None:
    _, hard = resource.getrlimit(limit)
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(limit, (value, value))


def _let_write(allowed: bool) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard if allowed else SCRATCH_BYTES, hard))
