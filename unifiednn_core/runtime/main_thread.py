"""The main thread of a worker, in which the engine trains, and two watchers: for SIGTERM and for endless steps."""

import contextlib
import logging
import queue
import signal
import socket
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NoReturn

from unifiednn_core.base.trouble import log_error

WATCH_S = 0.5
LONGEST_COUNTED_S = 2.0  # a process that was suspended has not been computing meanwhile

_log = logging.getLogger(__name__)


class MainThreadTrainer:
    """Runs the engine in the thread that calls `run`, as often as `start` asks for.

    The main thread's heap grows and shrinks at one end. glibc gives other threads a second heap, in which the freed
    tensors of `paper-vision` held 20 to 40 MiB and cost 12 % of the makespan (two cores, torch 2.13.0 for CPU).
    """

    def __init__(self, train: Callable[[], object]):
        self._train = train
        self._asked: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self.is_training = False
        """Whether the engine trains or is about to; for any thread."""

    def start(self) -> None:
        """Train now, or as soon as the current training returns. Safe in any thread."""
        self.is_training = True
        self._asked.put(True)

    def run(self, telemetry: Callable[[], int], leave: Callable[[int], NoReturn]) -> int:
        """Train in this thread and run `telemetry` in another; return its exit code.

        If the engine still trains then, in a step that may never end, `leave` ends the process.
        """

        def in_thread() -> int:
            code = 1
            try:
                code = telemetry()
                return code
            finally:  # also after an error: nobody would hear of what trains on
                self._asked.put(False)
                if self.is_training:
                    leave(code)

        with ThreadPoolExecutor(1, "telemetry") as pool:
            done = pool.submit(in_thread)
            while self._asked.get():
                try:
                    self._train()
                except Exception:  # the telemetry thread sees that the engine stopped too early, and reports it
                    traceback.print_exc()
                finally:
                    self.is_training = False
            return done.result()


class SigtermListener:
    """Notices SIGTERM in any thread, even while the main thread is in a long step. Create it in the main thread."""

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._heard = False
        signal.signal(signal.SIGTERM, lambda *_: None)  # the byte that the signal writes is what counts
        signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)

    @property
    def heard(self) -> bool:
        """Whether SIGTERM ever came."""
        with contextlib.suppress(BlockingIOError):  # nothing new
            self._heard = self._heard or signal.SIGTERM in self._reader.recv(64)
        return self._heard

    def close(self) -> None:
        """Stop listening."""
        signal.set_wakeup_fd(-1)
        self._reader.close()
        self._writer.close()


class Watchdog:
    """Calls `on_stuck` with the name of a sub-model if its step takes longer than `limit_s`.

    It has its own thread, because the device can block every other one. It calls `on_stuck` at each look while the
    step lasts, because an error (a locked store) may keep it from acting.
    """

    def __init__(self, at_work: Callable[[], Mapping[str, float]], limit_s: float, on_stuck: Callable[[str], object]):
        """`at_work` returns the sub-models in a step and when that began; it runs in the watchdog's thread."""
        self._at_work, self._limit_s, self._on_stuck = at_work, limit_s, on_stuck
        self._elapsed_s: dict[tuple[str, float], float] = {}
        """Seconds that each step has lasted, by sub-model and begin."""

    def start(self) -> None:
        """Watch in a background thread until the process ends."""
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def look(self, since_last_s: float) -> None:
        """Look once, `since_last_s` after the look before."""
        passed_s, before = min(since_last_s, LONGEST_COUNTED_S), self._elapsed_s
        steps = tuple(self._at_work().items())
        self._elapsed_s = {step: before[step] + passed_s if step in before else 0.0 for step in steps}
        for step, elapsed_s in self._elapsed_s.items():
            if elapsed_s > self._limit_s:
                try:
                    self._on_stuck(step[0])
                except Exception:  # a locked store must not end the watchdog; the next look tries again
                    log_error(_log, "A step that takes too long could not be ended; it is tried again.")

    def _watch(self) -> None:
        last_s = time.monotonic()
        while True:
            time.sleep(min(WATCH_S, self._limit_s / 4))
            now_s = time.monotonic()
            self.look(now_s - last_s)
            last_s = now_s
