"""Machine and version of a measurement, shared by bench and drill."""

import os
import platform
import sqlite3
import subprocess
from importlib.metadata import version
from pathlib import Path

from unifiednn_core.base.errors import UnifiedNNError

_REPOSITORY = Path(__file__).resolve().parents[1]
_PATIENCE_S = 10.0


class ToolFailed(UnifiedNNError, RuntimeError):
    """A bench could not run; this says nothing about the product."""


def machine() -> dict[str, object]:
    """What a result depends on."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "os": platform.platform(terse=True),
        "python": platform.python_version(),
        "torch": version("torch"),
        "sqlite": sqlite3.sqlite_version,
    }


def commit() -> str | None:
    """Commit of the program, marked if files differ from it; None without git."""
    head = _git("rev-parse", "--short=12", "HEAD")
    changed = _git("status", "--porcelain", "--untracked-files=no")
    return head and (f"{head} with changes" if changed else head)


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=_REPOSITORY, capture_output=True, text=True, timeout=_PATIENCE_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
