"""Whether a process that was recorded once is still the same, and alive."""

import os
from pathlib import Path

import psutil

from unifiednn_core.store.workers import WorkerIdentity

_START_TICKS = 19  # of the fields after the command's name; proc_pid_stat(5) numbers it 22


def boot_id() -> str:
    """Name of the time since the machine was started."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return f"{psutil.boot_time():.0f}"


def current() -> WorkerIdentity:
    """Identity of the calling process."""
    return identity(os.getpid())


def identity(pid: int) -> WorkerIdentity:
    """Identity of a process of this machine; raises `psutil.NoSuchProcess`."""
    return WorkerIdentity(pid, started_at_s(pid), boot_id())


def started_at_s(pid: int) -> float:
    """When a process was started; raises `psutil.NoSuchProcess`.

    On Linux in seconds since boot: a time of day would change whenever somebody sets the clock.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return int(fields[_START_TICKS]) / os.sysconf("SC_CLK_TCK")
    except FileNotFoundError:
        return psutil.Process(pid).create_time()


def alive(worker: WorkerIdentity) -> bool:
    """Whether that very process still runs."""
    if worker.boot_id != boot_id():
        return False
    try:
        same = abs(started_at_s(worker.pid) - worker.started_at_s) < 1.0
        return same and psutil.Process(worker.pid).status() != psutil.STATUS_ZOMBIE
    except (psutil.NoSuchProcess, ProcessLookupError):
        return False
    except psutil.AccessDenied:  # it exists, that much is told
        return True
