"""How the cores of this machine are divided among lanes and threads."""

import os
from typing import Literal

from unifiednn_core.spec.run import MOST_LANES

GPU_LANES = 2


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def default_threads() -> int:
    """CPU threads of a step: all cores but one, which the dashboard and the telemetry need."""
    return max(1, cores() - 1)


def lanes_of(asked: int | Literal["auto"], threads: int, device_type: str) -> int:
    """Sub-models that may step at once, with `threads` CPU threads each: as many as fit on the cores, by default."""
    if asked != "auto":
        return asked
    return GPU_LANES if device_type == "cuda" else max(1, min(MOST_LANES, cores() // threads))
