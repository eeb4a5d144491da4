"""Notices a step that never returns, in a thread of its own: no other one can be held up by the device as it is."""

import threading
import time
from collections.abc import Callable

TICK_S = 0.5
LONGEST_COUNTED_S = 2.0  # a process that was held up as a whole has not been taking a step in the meantime


class Watchdog:
    """Calls `bark` with the name of a sub-model whose step takes longer than `limit_s`."""

    def __init__(self, at_work: Callable[[], tuple[str, float] | None], limit_s: float, bark: Callable[[str], object]):
        """`at_work` says whose step it is and when it began; it may be asked from any thread."""
        self._at_work, self._limit_s, self._bark = at_work, limit_s, bark
        self._step: tuple[str, float] | None = None
        self._elapsed_s = 0.0

    def start(self) -> None:
        """Watch in a background thread, as long as the process lives."""
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def look(self, since_last_s: float) -> None:
        """Look once, so many seconds after the look before."""
        step = self._at_work()
        self._elapsed_s = 0.0 if step != self._step else self._elapsed_s + min(since_last_s, LONGEST_COUNTED_S)
        self._step = step
        if step is not None and self._elapsed_s > self._limit_s:
            self._bark(step[0])

    def _watch(self) -> None:
        last_s = time.monotonic()
        while True:
            time.sleep(min(TICK_S, self._limit_s / 4))
            now_s = time.monotonic()
            self.look(now_s - last_s)
            last_s = now_s
