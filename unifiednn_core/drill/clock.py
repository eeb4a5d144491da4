"""A clock that all processes of an exercise share, and that is set forwards and backwards while they run."""

import mmap
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from unifiednn_core.clock import RealClock

_FORMAT = struct.Struct("d")


def set_offset(path: Path, offset_s: float) -> None:
    """Set the clock of everybody who follows `path`, at once."""
    if not path.exists():
        path.write_bytes(_FORMAT.pack(0.0))
    with path.open("r+b") as file, mmap.mmap(file.fileno(), _FORMAT.size) as shared:
        shared[:] = _FORMAT.pack(offset_s)


def follow(path: Path) -> None:
    """Let this process go by the clock of `path`: every moment it asks for, and the time of boot, which moves along."""
    with path.open("rb") as file:
        shared = mmap.mmap(file.fileno(), _FORMAT.size, prot=mmap.PROT_READ)

    def offset_s() -> float:
        value: float = _FORMAT.unpack(shared[:])[0]
        return value

    def utc_s(_clock: RealClock) -> float:
        return time.time() + offset_s()

    setattr(RealClock, "utc_s", utc_s)  # noqa: B010  (a plain assignment is no typed one)
    linux: Any = sys.modules.get("psutil._pslinux")
    if linux is not None:  # Linux derives it from the clock; so do the start times of processes that psutil tells
        boot_time: Callable[[], float] = linux.boot_time
        linux.boot_time = lambda: boot_time() + offset_s()
