"""Whether a process that was recorded once is still the same, and alive."""

import os
from pathlib import Path

import psutil

from unifiednn_core.store.runs import WorkerIdentity


def boot_id() -> str:
    """Name of the time since the machine was started."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return f"{psutil.boot_time():.0f}"


def current() -> WorkerIdentity:
    """Identity of the calling process."""
    pid = os.getpid()
    return WorkerIdentity(pid, psutil.Process(pid).create_time(), boot_id())


def alive(worker: WorkerIdentity) -> bool:
    """Whether that very process still runs."""
    if worker.boot_id != boot_id():
        return False
    try:
        process = psutil.Process(worker.pid)
        same = abs(process.create_time() - worker.started_at_s) < 1.0
        return same and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:  # it exists, that much is told
        return True
