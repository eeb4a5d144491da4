"""Reads jobs from a person's own copy of a public trace of a GPU cluster.

| trace | file | jobs that count | duration |
|---|---|---|---|
| Philly | `cluster_job_log`, JSON | one GPU in the last attempt | start of the first attempt to the end of the last |
| Helios | `cluster_log.csv` | `gpu_num` is 1 | column `duration` |
| Alibaba PAI | `pai_job_table.csv` | all, because GPUs are in another table | submission to end |
| Alibaba PAI | `pai_task_table.csv` | at most one GPU, without users | start to end |

The tables of PAI come without their headers, which may have been added.
Jobs without a start, an end or a duration above 0 are left out. Formats: the README files of msr-fiddle/philly-traces,
S-Lab-System-Group/HeliosData and alibaba/clusterdata (cluster-trace-gpu-v2020).
"""

import csv
import heapq
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from unifiednn_core.base.errors import BadInput
from unifiednn_core.scheduling.simulator import SimulatedJob
from unifiednn_core.scheduling.workloads import job_of

KINDS = "cluster_job_log (Philly), cluster_log.csv (Helios), pai_job_table.csv or pai_task_table.csv (Alibaba PAI)"
_HELIOS = {"user", "gpu_num", "submit_time", "duration"}
_PAI_JOBS = ("job_name", "inst_id", "user", "status", "start_time", "end_time")
_PAI_TASKS = ("job_name", "task_name", "inst_num", "status", "start_time", "end_time", "plan_cpu", "plan_mem",
              "plan_gpu", "gpu_type")  # fmt: skip
_PHILLY_TIME = "%Y-%m-%d %H:%M:%S"


class TracedJob(NamedTuple):
    """One job; seconds count from some moment that all jobs of a trace share."""

    submitted_s: float
    duration_s: float
    user: str


_Row = Mapping[str, str]


def read_trace(path: Path, *, jobs: int) -> tuple[SimulatedJob, ...]:
    """The `jobs` jobs that were submitted first. Raises `BadInput` for other files, and if there is none."""
    try:
        first = heapq.nsmallest(jobs, (job for job in _jobs(path) if job.duration_s > 0))
    except (
        UnicodeDecodeError,
        json.JSONDecodeError,
        csv.Error,
        KeyError,
        TypeError,
        ValueError,
        RecursionError,
    ) as error:
        message = f"This is not a known trace ({type(error).__name__}: {str(error)[:100]})."
        raise BadInput.of("Trace", str(path), message, f"Give a copy of {KINDS}.") from None
    if not first:
        raise BadInput.of("Trace", str(path), "No job of one GPU with a duration is in it.", f"Give a copy of {KINDS}.")
    return tuple(
        job_of(f"job{place:04}", job.submitted_s - first[0].submitted_s, job.duration_s, job.user)
        for place, job in enumerate(first)
    )


def _jobs(path: Path) -> Iterator[TracedJob]:
    """Jobs in the order of the file; the content decides which trace it is."""
    with path.open(encoding="utf-8", newline="") as file:
        start = file.read(1)
        file.seek(0)
        if start in ("[", "{"):
            yield from map(_philly, filter(_ended_on_one_gpu, json.load(file)))
            return
        rows = csv.reader(file)
        head = next(rows, [])
        names, read = _table(head)
        if names == tuple(head):
            head = []
        for row in ([head] if head else []), rows:
            yield from _read((dict(zip(names, one, strict=True)) for one in row), read)


def _table(head: list[str]) -> tuple[tuple[str, ...], Callable[[_Row], TracedJob | None]]:
    """Columns of a table by its first row, and how a row is read. Raises `ValueError` for an unknown one."""
    if set(head) >= _HELIOS:
        return tuple(head), _helios
    for names, read in ((_PAI_JOBS, _pai_job), (_PAI_TASKS, _pai_task)):
        if len(head) == len(names):
            return names, read
    raise ValueError(f"unknown columns: {', '.join(head)[:60]}")


def _read(rows: Iterable[_Row], read: Callable[[_Row], TracedJob | None]) -> Iterator[TracedJob]:
    yield from (job for job in map(read, rows) if job is not None)


def _helios(row: _Row) -> TracedJob | None:
    if float(row["gpu_num"]) != 1:
        return None
    submitted = datetime.fromisoformat(row["submit_time"]).replace(tzinfo=UTC)
    return TracedJob(submitted.timestamp(), float(row["duration"]), row["user"])


def _pai_job(row: _Row) -> TracedJob | None:
    if not (row["start_time"] and row["end_time"]):
        return None
    begin_s, end_s = float(row["start_time"]), float(row["end_time"])
    return TracedJob(begin_s, end_s - begin_s, row["user"])


def _pai_task(row: _Row) -> TracedJob | None:
    if not (row["start_time"] and row["end_time"] and row["plan_gpu"]):
        return None
    if not 0 < float(row["inst_num"] or 1) * float(row["plan_gpu"]) <= 100:  # percent of a GPU
        return None
    begin_s, end_s = float(row["start_time"]), float(row["end_time"])
    return TracedJob(begin_s, end_s - begin_s, "")


def _ended_on_one_gpu(job: Mapping[str, Any]) -> bool:
    attempts = job["attempts"]
    whole = attempts and _moment_s(attempts[0]["start_time"]) and _moment_s(attempts[-1]["end_time"])
    return bool(whole) and sum(len(part["gpus"]) for part in attempts[-1]["detail"]) == 1


def _philly(job: Mapping[str, Any]) -> TracedJob:
    begin_s, end_s = (_moment_s(job["attempts"][at][name]) for at, name in ((0, "start_time"), (-1, "end_time")))
    return TracedJob(_moment_s(job["submitted_time"]) or begin_s, end_s - begin_s, job["user"])


def _moment_s(text: str | None) -> float:
    """UTC seconds of a moment of Philly; 0 if it is not recorded."""
    if text in (None, "", "None"):
        return 0.0
    return datetime.strptime(str(text), _PHILLY_TIME).replace(tzinfo=UTC).timestamp()
