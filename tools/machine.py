"""Machine and version of a measurement, and how a tool waits; shared by bench and drill."""

import os
import platform
import socket
import sqlite3
import subprocess
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from unifiednn_core.base.errors import UnifiedNNError

_REPOSITORY = Path(__file__).resolve().parents[1]
_PATIENCE_S, _LONGEST_S = 10.0, 300.0


class ToolFailed(UnifiedNNError, RuntimeError):
    """A bench could not run; this says nothing about the product."""


def until(done: Callable[[], bool], what: str, poll_s: float = 0.05) -> None:
    """Wait for something. Raises `ToolFailed` if it does not come."""
    deadline_s = time.monotonic() + _LONGEST_S
    while not done():
        if time.monotonic() > deadline_s:
            raise ToolFailed(f"{what} did not come within {_LONGEST_S:g} s.")
        time.sleep(poll_s)


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def answers(port: int) -> bool:
    """Whether a port of this machine accepts connections."""
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


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
