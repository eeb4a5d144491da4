"""A clock for tests."""

import threading


class SimulatedClock:
    """A clock that moves only when `advance` is called; the calling thread counts as computing meanwhile."""

    def __init__(self, start_s: float = 0.0):
        self._now_s = start_s
        self._lock, self._own = threading.Lock(), threading.local()

    def utc_s(self) -> float:
        """Simulated seconds."""
        return self._now_s

    def monotonic_s(self) -> float:
        """Simulated seconds."""
        return self._now_s

    def thread_s(self) -> float:
        """Simulated seconds for which the calling thread has advanced the clock."""
        return float(getattr(self._own, "advanced_s", 0.0))

    def waited_s(self) -> float:
        """No other program needs the cores."""
        return 0.0

    def advance(self, seconds: float) -> None:
        """Move time forward."""
        if seconds < 0:
            raise ValueError(f"time cannot go back by {-seconds} s")
        with self._lock:
            self._now_s += seconds
        self._own.advanced_s = self.thread_s() + seconds
