"""How the cores of this machine are divided among lanes and threads."""

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Literal

from unifiednn_core.spec.run import MOST_LANES

GPU_LANES = 2
_TOPOLOGY = Path("/sys/devices/system/cpu")
_THREADS = Path("/proc/self/task")
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


def own_cores() -> tuple[int, ...]:
    """Numbers of the cores that this process may use; those of one socket, and of one physical core, in a row."""
    numbers = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    return tuple(sorted(numbers, key=_place))


def divided(numbers: Sequence[int], parts: int) -> tuple[tuple[int, ...], ...]:
    """Disjoint sets that hold all these cores, equal to within one; empty ones if there are too few cores for that."""
    if len(numbers) < parts:
        return ((),) * parts
    bounds = [len(numbers) * at // parts for at in range(parts + 1)]
    return tuple(tuple(sorted(numbers[begin:end])) for begin, end in pairwise(bounds))


def keep_to(numbers: Iterable[int]) -> None:
    """Let this process, with all its threads and all that it starts, use only these cores; all if there are none.

    Does nothing where the system does not allow it.
    """
    wanted = set(numbers)
    if not wanted or not hasattr(os, "sched_setaffinity"):
        return
    for thread in _THREADS.iterdir():
        with suppress(OSError):  # it has ended, or has none of these cores
            os.sched_setaffinity(int(thread.name), wanted)


def _place(number: int) -> tuple[int, ...]:
    """Socket, physical core and number of a core."""
    try:
        folder = _TOPOLOGY / f"cpu{number}" / "topology"
        found = (int((folder / name).read_text(encoding="ascii")) for name in ("physical_package_id", "core_id"))
        return (*found, number)
    except (OSError, ValueError):
        return (0, 0, number)


def default_threads() -> int:
    """CPU threads of a step: all cores but one, which the dashboard and the telemetry need."""
    return max(1, cores() - 1)


def lanes_of(asked: int | Literal["auto"], threads: int, device_type: str, own: int = 0) -> int:
    """Sub-models that may step at once, with `threads` CPU threads each: as many as fit on the cores, by default.

    `own` counts the cores of its device; 0 means those of this process.
    """
    if asked != "auto":
        return asked
    return GPU_LANES if device_type == "cuda" else max(1, min(MOST_LANES, (own or cores()) // threads))
