"""Scripts as processes: started with an environment of their own, listened to, and waited for with what they used."""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unifiednn_core.clock import Clock
from unifiednn_core.runtime.launchers import training_environment

_MAXRSS_BYTES = 1 if sys.platform == "darwin" else 1024  # unit of ru_maxrss

SCRIPT = "unifiednn_core.baselines.vanilla"


@dataclass(frozen=True, slots=True)
class Said:
    """One row that a script told; `report.py` says what stands in it."""

    name: str
    row: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Ended:
    """A script's process has ended."""

    name: str
    code: int
    """Exit code, or minus the signal that ended it."""
    at_s: float
    """By the monotonic clock."""
    cpu_s: float
    """User and system seconds of the process and of those that it waited for."""
    peak_resident_bytes: int
    """Most that it had resident at any moment."""


Message = Said | Ended


class Process:
    """One running script. A thread reads what it tells, so that it never waits for a reader, and then waits for it."""

    def __init__(
        self, name: str, process: "subprocess.Popen[bytes]", inbox: "queue.SimpleQueue[Message]", clock: Clock
    ):
        self.name, self.pid = name, process.pid
        self._process, self._inbox, self._clock = process, inbox, clock
        self._lock = threading.Lock()
        self._reaped = False
        threading.Thread(target=self._listen, name=f"script {name}", daemon=True).start()

    def send(self, number: signal.Signals) -> None:
        """Send a signal; nothing happens where the process has ended."""
        with self._lock:  # a number that was given back may be another process's by now
            if not self._reaped:
                os.kill(self.pid, number)

    def _listen(self) -> None:
        pipe = self._process.stdout
        for line in pipe or ():
            with contextlib.suppress(ValueError):  # something else that a library printed
                row = json.loads(line)
                if isinstance(row, dict) and "kind" in row:
                    self._inbox.put(Said(self.name, row))
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        at_s = self._clock.monotonic_s()
        with self._lock:
            _, status, used = os.wait4(self.pid, 0)
            self._reaped = True
        code = os.waitstatus_to_exitcode(status)
        self._process.returncode = code  # Popen did not see it end
        if pipe is not None:
            pipe.close()
        self._inbox.put(Ended(self.name, code, at_s, used.ru_utime + used.ru_stime, used.ru_maxrss * _MAXRSS_BYTES))


def start(name: str, job: Path, log: Path, threads: int, inbox: "queue.SimpleQueue[Message]", clock: Clock) -> Process:
    """Start the script of a job; raises `OSError`. Its stderr goes to `log`, its rows and its end to `inbox`.

    A script ends with the thread that started it, so this is for the main thread.
    """
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", SCRIPT, str(job)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=file,
            env=training_environment(threads),
        )
    return Process(name, process, inbox, clock)
