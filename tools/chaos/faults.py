"""Faults from outside a process: a clock that jumps and a disk that damages checkpoints."""

import mmap
import sqlite3
import struct
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from unifiednn_core.base.clock import RealClock
from unifiednn_core.base.paths import Home

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


OPEN_STATES = ("queued", "running", "pausing", "paused", "interrupted")


def spoil(home: Home, hybrid_id: str, how: str, share: float) -> Path | None:
    """Flip a byte of, or cut off, the newest checkpoint of one that still trains and has an earlier one.

    Returns the file; None if no sub-model of the hybrid has two checkpoints.
    """
    with closing(sqlite3.connect(home.database)) as database:
        marks = ", ".join("?" * len(OPEN_STATES))
        rows = database.execute(
            f"SELECT run_id, name FROM submodels WHERE hybrid_id = ? AND state IN ({marks}) ORDER BY run_id, name",
            (hybrid_id, *OPEN_STATES),
        )
        candidates = [paths for run_id, name in rows if len(paths := checkpoints(home, run_id, name)) > 1]
    if not candidates:
        return None
    path = candidates[int(share * len(candidates))][-1]
    content = bytearray(path.read_bytes())
    place = int(share * len(content))
    if how == "flip":
        content[place] ^= 0xFF
        path.write_bytes(content)
    else:
        path.write_bytes(content[:place])
    return path


def checkpoints(home: Home, run_id: str, submodel: str) -> list[Path]:
    """Checkpoints of a sub-model by their names, the oldest first."""
    return sorted(home.checkpoints(run_id, submodel).glob("step-*.safetensors"))
