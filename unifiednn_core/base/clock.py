"""The only place that reads the machine's clock, so that tests can substitute their own."""

import time
from typing import Protocol


class Clock(Protocol):
    """`utc_s` is for moments, `monotonic_s` for durations."""

    def utc_s(self) -> float:
        """Seconds since 1970-01-01 UTC."""
        ...

    def monotonic_s(self) -> float:
        """Seconds since an arbitrary moment; never decreases."""
        ...

    def thread_s(self) -> float:
        """CPU seconds of the calling thread."""
        ...


class RealClock:
    """The machine's clock."""

    def utc_s(self) -> float:
        """Seconds since 1970-01-01 UTC."""
        return time.time()

    def monotonic_s(self) -> float:
        """Seconds since an arbitrary moment; never decreases."""
        return time.perf_counter()

    def thread_s(self) -> float:
        """CPU seconds of the calling thread."""
        return time.thread_time()
