"""Starts scripts as processes, reads their rows, reaps them with their resource usage, and explains failures."""

import contextlib
import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unifiednn_core.base.clock import Clock
from unifiednn_core.base.files import last_lines
from unifiednn_core.runtime.launchers import training_environment

_MAXRSS_BYTES = 1 if sys.platform == "darwin" else 1024  # unit of ru_maxrss
SCRIPT = "unifiednn_core.compare.vanilla"
TAIL_BYTES = 16_384
_ERROR = re.compile(r"^(?:[a-zA-Z_]\w*\.)*([A-Z]\w*): (.*)$")
_NO_MEMORY = (
    "out of memory",
    "OutOfMemoryError",
    "MemoryError",
    "not enough memory",
    "can't allocate memory",
    "Cannot allocate memory",
    "bad_alloc",
    "CUBLAS_STATUS_ALLOC_FAILED",
)
_SMALLER = "smaller batches or a larger batch split"
_OWN_WORDS = frozenset({"Diverged", "BadInput", "BadCheckpoint", "HostileFile"})


@dataclass(frozen=True, slots=True)
class ScriptRow:
    """One row that a script wrote; `vanilla.py` lists them."""

    name: str
    row: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ScriptEnd:
    """The process of a script has ended."""

    name: str
    code: int  # exit code, or minus the signal that killed it
    at_s: float  # monotonic clock
    cpu_s: float  # user and system seconds of the process and its reaped children
    peak_resident_bytes: int


Message = ScriptRow | ScriptEnd


class ScriptProcess:
    """One running script. A thread reads its stdout, so the script never blocks, and then reaps it.

    Make it in the main thread: a script dies with the thread that started it.
    """

    def __init__(
        self, name: str, job: Path, log: Path, threads: int, inbox: "queue.SimpleQueue[Message]", clock: Clock
    ):
        """Start the script of a job; stderr goes to `log`, rows and end go to `inbox`. Raises `OSError`."""
        command, environment = [sys.executable, "-m", SCRIPT, str(job)], training_environment(threads)
        with log.open("wb") as file:
            null, pipe = subprocess.DEVNULL, subprocess.PIPE
            self._process = subprocess.Popen(command, stdin=null, stdout=pipe, stderr=file, env=environment)
        self.name, self.pid = name, self._process.pid
        self._inbox, self._clock = inbox, clock
        self._lock = threading.Lock()
        self._reaped = False
        threading.Thread(target=self._listen, name=f"script {name}", daemon=True).start()

    def send(self, number: signal.Signals) -> None:
        """Send a signal; does nothing if the process has ended."""
        with self._lock:  # a reaped id may belong to another process
            if not self._reaped:
                os.kill(self.pid, number)

    def _listen(self) -> None:
        pipe = self._process.stdout
        for line in pipe or ():
            with contextlib.suppress(ValueError):  # a library printed another line
                row = json.loads(line)
                if isinstance(row, dict) and "kind" in row:
                    self._inbox.put(ScriptRow(self.name, row))
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        at_s = self._clock.monotonic_s()
        with self._lock:
            _, status, used = os.wait4(self.pid, 0)
            self._reaped = True
        code = os.waitstatus_to_exitcode(status)
        self._process.returncode = code  # Popen did not see it end
        if pipe is not None:
            pipe.close()
        self._inbox.put(ScriptEnd(self.name, code, at_s, used.ru_utime + used.ru_stime, used.ru_maxrss * _MAXRSS_BYTES))


def cause_of(mode: str, code: int, last_line: str, log: str) -> tuple[str, str]:
    """Explain why a script ended with `code`, and what to do; `log` names its log file."""
    kind, text = found.groups() if (found := _ERROR.match(last_line)) else ("", "")
    remedy = "Run the baseline again."
    if code == -signal.SIGKILL:
        killed = "the process was killed by signal 9 (SIGKILL), most likely out of memory"
        cause, remedy = f"{mode} probably does not fit: {killed}.", _save_memory(mode)
    elif any(words in last_line for words in _NO_MEMORY):
        cause, remedy = f"{mode} does not fit: {last_line}", _save_memory(mode)
    elif code < 0:
        name = next((known.name for known in signal.Signals if known == -code), "unknown")
        cause = f"The process was killed by signal {-code} ({name})."
    elif not last_line:
        cause = f"The process ended with exit code {code} before its weights were written."
    elif kind == "Diverged":
        cause, remedy = text, "Use a smaller learning rate, in the hybrid too."
    else:
        cause = f"{kind}: {text}" if kind else f"The process ended with exit code {code}: {last_line}"
        cause, remedy = text if kind in _OWN_WORDS else cause, "Correct it and run the baseline again."
    return cause, f"{remedy} The full log is in {log}."


def last_line(log: Path) -> str:
    """Return the last error line of a log (the first line of its text), else the last line, else an empty text."""
    try:
        lines = last_lines(log.parent, log.name, TAIL_BYTES)[0].splitlines()
    except OSError:
        return ""
    said = [line.strip() for line in lines if line.strip()]
    errors = [line.strip() for line in lines if _ERROR.match(line)]  # a traceback ends with one that is not indented
    return (errors or said or [""])[-1]


def _save_memory(mode: str) -> str:
    if mode == "concurrent":
        return f"The sequential baseline trains one at a time and needs less. Or use {_SMALLER}."
    return f"Use {_SMALLER}, in the hybrid too, or free memory on this machine."
