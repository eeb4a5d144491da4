"""The clock, which tests replace."""

import os
import threading
import time

_OWN = threading.local()


class Clock:
    """The machine's clock: `utc_s` is for moments, `monotonic_s` for durations."""

    def utc_s(self) -> float:
        """Seconds since 1970-01-01 UTC."""
        return time.time()

    def monotonic_s(self) -> float:
        """Seconds since an arbitrary moment; never decreases."""
        return time.perf_counter()

    def thread_s(self) -> float:
        """CPU seconds of the calling thread."""
        return time.thread_time()

    def waited_s(self) -> float:
        """Seconds for which the calling thread had no core (Linux, 2 us); 0 where the system does not tell."""
        held: _Schedstat | None = getattr(_OWN, "schedstat", None)
        if held is None:
            held = _OWN.schedstat = _Schedstat()
        return held.waited_s()


class _Schedstat:
    """The kernel's account of the calling thread, open until the thread ends."""

    def __init__(self) -> None:
        try:
            self._file = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._file = -1

    def waited_s(self) -> float:
        return 0.0 if self._file < 0 else int(os.pread(self._file, 64, 0).split()[1]) / 1e9

    def __del__(self) -> None:
        if self._file >= 0:
            os.close(self._file)


def stamp(utc_s: float) -> str:
    """UTC time as `20261121-143207`."""
    return time.strftime("%Y%m%d-%H%M%S", time.gmtime(utc_s))
