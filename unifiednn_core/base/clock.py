"""The only place that reads the machine's clock, so that tests and the simulator can substitute their own."""

import time
from typing import Protocol


class Clock(Protocol):
    """Two readings: `utc_s` names a moment, `monotonic_s` measures a duration."""

    def utc_s(self) -> float:
        """Seconds since 1970-01-01 UTC."""
        ...

    def monotonic_s(self) -> float:
        """Seconds since an arbitrary moment; never decreases."""
        ...


class RealClock:
    """The machine's clock."""

    def utc_s(self) -> float:
        """Seconds since 1970-01-01 UTC."""
        return time.time()

    def monotonic_s(self) -> float:
        """Seconds since an arbitrary moment; never decreases."""
        return time.perf_counter()


class SimulatedClock:
    """A clock that moves only when `advance` is called."""

    def __init__(self, start_s: float = 0.0):
        self._now_s = start_s

    def utc_s(self) -> float:
        """Simulated seconds."""
        return self._now_s

    def monotonic_s(self) -> float:
        """Simulated seconds."""
        return self._now_s

    def advance(self, seconds: float) -> None:
        """Move time forward."""
        if seconds < 0:
            raise ValueError(f"time cannot go back by {-seconds} s")
        self._now_s += seconds
