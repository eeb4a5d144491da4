"""The main thread of a worker: where the engine trains, while all that goes on beside it has a thread of its own."""

import contextlib
import queue
import signal
import socket
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NoReturn


class Seat:
    """Lets the engine train in the thread that calls `serve`, as often as it is asked to.

    The main thread's heap grows and shrinks at one end; glibc gives any other thread a second heap, in which the freed
    tensors of `paper-vision` kept 20 to 40 MiB and 12 % of the makespan (measured on two cores, torch 2.13.0 for CPU).
    """

    def __init__(self, train: Callable[[], object]):
        self._train = train
        self._asked: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self.taken = False
        """Whether the engine trains, or is about to; for any thread."""

    def take(self) -> None:
        """Have the engine train, now or as soon as it has ended what it does; safe in any thread."""
        self.taken = True
        self._asked.put(True)

    def serve(self, attend: Callable[[], int], leave: Callable[[int], NoReturn]) -> int:
        """Run `attend` in a thread called telemetry, and train whenever it asks; returns what it returns.

        Where the engine still trains when `attend` is done, in a step that may never end, `leave` ends the process.
        """

        def attended() -> int:
            try:
                code = attend()
                if self.taken:
                    leave(code)
                return code
            finally:
                self._asked.put(False)

        with ThreadPoolExecutor(1, "telemetry") as beside:
            done = beside.submit(attended)
            while self._asked.get():
                try:
                    self._train()
                except Exception:  # who attends sees that the engine rests too early, and says so
                    traceback.print_exc()
                finally:
                    self.taken = False
            return done.result()


class Terminations:
    """Hears SIGTERM in any thread, even while the main one is deep in a step. To be made in the main thread."""

    def __init__(self) -> None:
        self._hears, self._tells = socket.socketpair()
        self._hears.setblocking(False)
        self._tells.setblocking(False)
        self._heard = False
        signal.signal(signal.SIGTERM, lambda *_: None)  # what counts is the byte that the signal itself writes
        signal.set_wakeup_fd(self._tells.fileno(), warn_on_full_buffer=False)

    @property
    def heard(self) -> bool:
        """Whether the process was ever asked to end."""
        with contextlib.suppress(BlockingIOError):  # nothing was told since
            self._heard = self._heard or signal.SIGTERM in self._hears.recv(64)
        return self._heard

    def close(self) -> None:
        """Hear no more."""
        signal.set_wakeup_fd(-1)
        self._hears.close()
        self._tells.close()
