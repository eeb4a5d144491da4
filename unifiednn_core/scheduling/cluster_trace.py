"""Reads the jobs of a cluster from a CSV file of our own, one job in each row.

| column | what | if it is missing |
|---|---|---|
| `submitted_s` | seconds since any moment that all rows share | required |
| `duration_s` | seconds that it trains alone on its GPUs, above 0 | required |
| `memory_bytes` | most memory on each of its GPUs, without a CUDA context | 1 GiB |
| `kept_bytes` | the part of it that stays between two steps: weights, optimizer | all of it |
| `owner` | who submits it | nobody |
| `gpus` | GPUs of one kind that it needs at once | 1 |
| `kind` | name of the kind of GPU that it asks for | any |
| `priority` | lower goes first, where a policy looks at it | 0 |

Columns may stand in any order; others are refused, because a misspelt one would be left out in silence.
"""

import csv
import difflib
import math
from collections.abc import Mapping
from pathlib import Path

from unifiednn_core.base.errors import BadInput, Finding
from unifiednn_core.base.units import GIB
from unifiednn_core.scheduling.cluster import Cluster, ClusterJob

REQUIRED = ("submitted_s", "duration_s")
COLUMNS = (*REQUIRED, "memory_bytes", "kept_bytes", "owner", "gpus", "kind", "priority")
USUAL_BYTES = GIB
MOST_FINDINGS = 20
_LEAST: Mapping[str, float] = {"submitted_s": -math.inf, "memory_bytes": 0, "kept_bytes": 0, "gpus": 1}
_WHOLE = {"memory_bytes", "kept_bytes", "gpus", "priority"}


def is_ours(path: Path) -> bool:
    """Whether the first line of a file names our columns."""
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        head = next(csv.reader([file.readline(10_000)]), [])
    return any(name.strip().lstrip("\ufeff") in REQUIRED for name in head)


def read_jobs(path: Path, cluster: Cluster, *, most: int) -> tuple[ClusterJob, ...]:
    """The jobs that were submitted first, at most so many. Raises `BadInput` that names line and column of mistakes."""
    findings, found = list[Finding](), list[ClusterJob]()
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        rows = csv.reader(file)
        head = [name.strip() for name in next(rows, [])]
        _check_head(head, path)
        for values in rows:
            if not any(values):
                continue
            where = f"{path.name}, line {rows.line_num}"
            if len(values) != len(head):
                message = f"It has {len(values)} values for {len(head)} columns."
                findings.append(_finding(where, message, "Give each row one value for each column."))
            elif len(findings) < MOST_FINDINGS:
                job = _job(
                    len(found), dict(zip(head, (value.strip() for value in values), strict=True)), where, findings
                )
                if job is not None:
                    _fit(job, cluster, where, findings)
                    found.append(job)
            if len(findings) >= MOST_FINDINGS:
                break
    if findings:
        raise BadInput(findings)
    if not found:
        raise BadInput.of("Trace", str(path), "No job is in it.", "Give one row for each job, below the column names.")
    return tuple(sorted(found, key=lambda job: job.submitted_s)[:most])


def _check_head(head: list[str], path: Path) -> None:
    where, all_of_them = f"{path.name}, line 1", ", ".join(COLUMNS)
    findings = [
        _finding(where, f"The column '{name}' is missing.", f"Add it. Columns: {all_of_them}.")
        for name in REQUIRED if name not in head
    ]  # fmt: skip
    for name in [name for name in head if name not in COLUMNS]:
        close = difflib.get_close_matches(name, COLUMNS, n=1)
        guess = f" Did you mean '{close[0]}'?" if close else ""
        findings.append(_finding(where, f"There is no column '{name}'.{guess}", f"Choose from: {all_of_them}."))
    twice = sorted({name for name in head if head.count(name) > 1})
    findings += [_finding(where, f"The column '{name}' is there twice.", "Remove one.") for name in twice]
    if findings:
        raise BadInput(findings)


def _job(place: int, row: Mapping[str, str], where: str, findings: list[Finding]) -> ClusterJob | None:
    before = len(findings)
    figures = {
        name: _number(name, row[name], where, findings)
        for name in ("submitted_s", "duration_s", "memory_bytes", "kept_bytes", "gpus", "priority")
        if row.get(name)
    }
    missing = [name for name in REQUIRED if not row[name]]
    findings += [_finding(f"{where}, {name}", "It has no value.", "Give a number of seconds.") for name in missing]
    if len(findings) > before:
        return None
    memory_bytes = int(figures.get("memory_bytes", USUAL_BYTES))
    kept_bytes = int(figures.get("kept_bytes", memory_bytes))
    if kept_bytes > memory_bytes:
        message = f"{kept_bytes} is more than memory_bytes, {memory_bytes}."
        findings.append(_finding(f"{where}, kept_bytes", message, "Give the part that stays between two steps."))
        return None
    return ClusterJob(
        name=f"job{place:05}", submitted_s=figures["submitted_s"], duration_s=figures["duration_s"],
        kept_bytes=kept_bytes, working_bytes=memory_bytes - kept_bytes, owner=row.get("owner", ""),
        gpus=int(figures.get("gpus", 1)), kind=row.get("kind") or None, priority=int(figures.get("priority", 0)),
    )  # fmt: skip


def _number(name: str, text: str, where: str, findings: list[Finding]) -> float:
    """A number as the column needs it; else a finding, and 0."""
    least = _LEAST.get(name, -math.inf)
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    wrong = not math.isfinite(value) or value < least or (name == "duration_s" and value <= 0)
    if wrong or (name in _WHOLE and value != int(value)):
        kind = "whole number" if name in _WHOLE else "number"
        range_text = " above 0" if name == "duration_s" else f" of at least {least:g}" if least > -math.inf else ""
        findings.append(
            _finding(f"{where}, {name}", f"'{text[:40]}' cannot be its value.", f"Give a {kind}{range_text}.")
        )
        return 0.0
    return value


def _fit(job: ClusterJob, cluster: Cluster, where: str, findings: list[Finding]) -> None:
    """Add a finding for a job that the cluster can never train for want of GPUs; memory shows in the simulation."""
    kinds = [kind for kind in cluster.kinds if job.kind in (None, kind.name)]
    if not kinds:
        names = ", ".join(kind.name for kind in cluster.kinds)
        findings.append(_finding(f"{where}, kind", f"The cluster has no '{job.kind}'.", f"Choose one of: {names}."))
    elif job.gpus > max(kind.gpus for kind in kinds):
        most = max(kind.gpus for kind in kinds)
        message = f"{job.gpus} GPUs of one kind are more than there are, {most}."
        findings.append(_finding(f"{where}, gpus", message, "Ask for fewer, or simulate more GPUs."))


def _finding(field: str, message: str, remedy: str) -> Finding:
    return Finding(title="Trace", field=field, message=message, remedy=remedy)
