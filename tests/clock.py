"""A clock for tests."""


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

    def thread_s(self) -> float:
        """Simulated seconds: as if the calling thread computed all the time."""
        return self._now_s

    def advance(self, seconds: float) -> None:
        """Move time forward."""
        if seconds < 0:
            raise ValueError(f"time cannot go back by {-seconds} s")
        self._now_s += seconds
