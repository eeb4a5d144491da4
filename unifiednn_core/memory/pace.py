"""How often a sampler may look, so that looking costs next to nothing."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from unifiednn_core.clock import Clock


class Pace:
    """Tells when the next sample is due: at most so often, and for at most this share of one core.

    A sample that took long pushes the next one back, so memory that is expensive to read is read less often.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        most_hz: float = 5.0,
        most_share: float = 0.01,
        cpu_s: Callable[[], float] = time.thread_time,
    ):
        """`cpu_s` reads the CPU seconds of the calling thread."""
        self._clock, self._period_s, self._most_share, self._cpu_s = clock, 1.0 / most_hz, most_share, cpu_s
        self._due_at_s = clock.monotonic_s()

    def due(self) -> bool:
        """Whether it is time for a sample; the first one is due at once."""
        return self._clock.monotonic_s() >= self._due_at_s

    @contextmanager
    def spending(self) -> Iterator[None]:
        """Take a sample inside: its CPU time says when the next one is due."""
        began_s, cpu_began_s = self._clock.monotonic_s(), self._cpu_s()
        try:
            yield
        finally:
            cost_s = self._cpu_s() - cpu_began_s
            self._due_at_s = began_s + max(self._period_s, cost_s / self._most_share)
