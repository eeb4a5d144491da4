"""How the cores of this machine are divided among lanes and threads."""

import os
from pathlib import Path
from typing import Literal

from unifiednn_core.spec.run import MOST_LANES

GPU_LANES = 2
_QUOTA = Path("/sys/fs/cgroup/cpu.max")
_QUOTA_V1 = Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"), Path("/sys/fs/cgroup/cpu/cpu.cfs_period_us")


def cores() -> int:
    """Cores that this process may use at once: its affinity, and the quota of its container."""
    known = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(known, int(quota_cores() or known)))


def quota_cores() -> float | None:
    """Cores that the container may use on average; None without a quota."""
    try:
        quota, period = _QUOTA.read_text(encoding="ascii").split()
    except (OSError, ValueError):
        try:
            quota, period = (path.read_text(encoding="ascii").strip() for path in _QUOTA_V1)
        except (OSError, ValueError):
            return None
    return int(quota) / int(period) if quota.isdigit() and int(period) > 0 else None


def default_threads() -> int:
    """CPU threads of a step: all cores but one, which the dashboard and the telemetry need."""
    return max(1, cores() - 1)


def lanes_of(asked: int | Literal["auto"], threads: int, device_type: str) -> int:
    """Sub-models that may step at once, with `threads` CPU threads each: as many as fit on the cores, by default."""
    if asked != "auto":
        return asked
    return GPU_LANES if device_type == "cuda" else max(1, min(MOST_LANES, cores() // threads))
