"""How busy a machine is with other work: what makes two measurements differ that ran at different times."""

import time
from collections.abc import Callable, Sequence
from typing import TypedDict

import psutil

_IDLE = frozenset({"idle", "iowait", "guest", "guest_nice"})


class LoadRecord(TypedDict):
    """Processor time over a stretch of a run, in seconds."""

    seconds: float
    """Length of the stretch."""
    busy_s: float
    """Of all processes on all processors."""
    own_s: float
    """Of the processes of the run."""
    processors: int


class LoadMeter:
    """Counts processor time from its making on."""

    def __init__(self, own_s: Callable[[], float]):
        """`own_s` reads the processor seconds of the run's processes so far."""
        self._own_s = own_s
        self._began = time.monotonic(), _busy_s(), own_s()

    def read(self) -> LoadRecord:
        """The stretch up to now."""
        began_s, busy_s, own_s = self._began
        return {
            "seconds": time.monotonic() - began_s,
            "busy_s": max(0.0, _busy_s() - busy_s),
            "own_s": max(0.0, self._own_s() - own_s),
            "processors": psutil.cpu_count() or 1,
        }


def others_share(records: Sequence[LoadRecord]) -> float | None:
    """Share of all processors that other work used, 0 to 1, over these stretches; None without any."""
    possible_s = sum(record["seconds"] * record["processors"] for record in records)
    others_s = sum(max(0.0, record["busy_s"] - record["own_s"]) for record in records)
    return min(1.0, others_s / possible_s) if possible_s > 0 else None


def _busy_s() -> float:
    """Processor seconds of the machine without idling and waiting; guests count in `user` already."""
    times = psutil.cpu_times()._asdict()
    return float(sum(seconds for name, seconds in times.items() if name not in _IDLE))
