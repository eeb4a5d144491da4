"""Lanes: threads of one engine in which several sub-models step at once.

One lock protects the state of the engine. A lane holds it all the time, except while it computes a step (`computing`)
or has nothing to do (`wait`). So between two steps a lane may change anything that no other lane
computes with; for everything else it first lets the others come to rest between two steps (`parked`).
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager


class Lanes:
    """The calling thread of `run`, and up to `count` - 1 more that start once there is work for them."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._lock = threading.Lock()
        self._rest = threading.Condition(self._lock)
        """Notified whenever a lane comes to rest between two steps, or may go on."""
        self._woken: dict[int, threading.Event] = {}
        self._threads: list[threading.Thread] = []
        self._busy = 0
        """Lanes that compute."""
        self._parking = False
        self.computing = _Computing(self)
        """Context that gives the lock back for a step."""
        self.broken: BaseException | None = None
        """Error that ended a lane; the others have to end, too."""

    def run(self, work: Callable[[], bool], inside: Callable[[int], AbstractContextManager[object]]) -> None:
        """Call `work` in each lane until it returns False, in the context `inside(number)`; this thread has number 1.

        Waits for all lanes. Raises the first error of any lane's `work`.
        """
        self.broken, self._work, self._inside = None, work, inside
        self._lane(1)
        for thread in self._threads:
            thread.join()
        self._threads.clear()
        if self.broken is not None:
            raise self.broken

    def open(self, wanted: int) -> None:
        """Start more lanes, so that there are `wanted`, or as many as there may be."""
        while len(self._threads) + 1 < min(wanted, self.count):  # they end all together
            number = len(self._threads) + 2
            thread = threading.Thread(target=self._lane, args=(number,), name=f"lane {number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def wake_others(self) -> None:
        """Let every other lane that waits look for work."""
        if self._threads:
            self.wake()

    def wake(self) -> None:
        """Let every waiting lane look for work. Safe in any thread; takes no lock."""
        for woken in tuple(self._woken.values()):
            woken.set()

    def begin(self) -> None:
        """Begin to look for work: a `wake` from now on ends the next `wait` of this lane."""
        self._woken[threading.get_ident()].clear()

    def wait(self, seconds: float | None = None) -> None:
        """Give the lock back until `wake`, or for so long."""
        self._lock.release()
        try:
            self._woken[threading.get_ident()].wait(seconds)
        finally:
            self._lock.acquire()
            self._stand_still()

    @contextmanager
    def parked(self) -> Iterator[None]:
        """Wait until no other lane computes, and let none begin; can be nested."""
        if self._parking:  # by this lane: any other one stands still
            yield
            return
        self._parking = True
        try:
            while self._busy:
                self._rest.wait()
            yield
        finally:
            self._parking = False
            self._rest.notify_all()

    # -- inside

    def _begin_step(self) -> None:
        self._busy += 1
        self._lock.release()

    def _end_step(self) -> None:
        self._lock.acquire()
        self._busy -= 1
        if self._parking:
            self._rest.notify_all()
            self._stand_still()

    def _stand_still(self) -> None:
        while self._parking:
            self._rest.wait()

    def _lane(self, number: int) -> None:
        own = self._woken[threading.get_ident()] = threading.Event()
        own.set()
        try:
            with self._inside(number), self._lock:
                self._stand_still()
                while self._work():
                    pass
        except BaseException as error:  # a defect of the engine itself; the main lane raises it
            self.broken = self.broken or error
        finally:
            del self._woken[threading.get_ident()]
            self.wake()


class _Computing:
    """A context for all lanes; it has no state, and costs less than a generator."""

    def __init__(self, lanes: Lanes):
        self._begin, self._end = lanes._begin_step, lanes._end_step

    def __enter__(self) -> None:
        self._begin()

    def __exit__(self, *error: object) -> None:
        self._end()
