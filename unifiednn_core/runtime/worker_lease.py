"""A worker's own side of its lease: it stops by itself before anybody may declare it lost, and keeps what it has."""

import threading
from collections.abc import Callable

from unifiednn_core.base.clock import Clock
from unifiednn_core.store.leases import may_step

LOOK_S = 0.5
Mark = Callable[[int, str, str], object]


class WorkerLease:
    """Holds steps back while no heartbeat could be written. Safe in any thread.

    Only where supervisors of other hosts may declare this worker lost (`counts`); alone on a machine it trains on.
    """

    def __init__(self, clock: Clock, *, counts: bool):
        self._clock, self._counts = clock, counts
        self._renewed_s = clock.monotonic_s()
        self._news = threading.Condition()

    def renewed(self, asked_s: float) -> None:
        """Record that a heartbeat is in the store, which was begun at this moment of the monotonic clock."""
        with self._news:
            self._renewed_s = max(self._renewed_s, asked_s)
            self._news.notify_all()

    @property
    def stands(self) -> bool:
        """Whether another step may be taken now."""
        return not self._counts or may_step(self._renewed_s, self._clock.monotonic_s())

    def wait(self) -> None:
        """Return as soon as another step may be taken."""
        while not self.stands:
            with self._news:
                self._news.wait(LOOK_S)

    def before_steps(self, mark: Mark) -> Mark:
        """The mark of the engine, which is made before each step, after waiting for the lease."""

        def marked(lane: int, submodel: str, doing: str) -> None:
            if doing.startswith("step"):
                self.wait()
            mark(lane, submodel, doing)

        return marked
