"""Waits for the process behind walls: reads what it prints, ends it when it asks for too much, says how it ended."""

import os
import selectors
import signal
import subprocess
import time
from dataclasses import dataclass

from unifiednn_core.errors import Finding
from unifiednn_core.sandbox.limits import Limits
from unifiednn_core.units import memory_text

_CHUNK_BYTES = 65_536
_BASE_OF_SIGNALS = 128
_NORMAL = frozenset({0, 3})
_LESS = "Make the network smaller, or build it with fewer steps."


@dataclass(frozen=True, slots=True)
class Ended:
    """How the process ended: what it printed, and what was wrong with its end."""

    log: bytes
    problem: Finding | None


def watch(process: subprocess.Popen[bytes], limits: Limits) -> Ended:
    """Wait until a process has ended, or end it."""
    until_s = time.monotonic() + limits.wall_s
    log = bytearray()
    try:
        while len(log) <= limits.log_bytes:
            chunk = _next(process, until_s - time.monotonic())
            if not chunk:
                break
            log += chunk
        else:
            return Ended(bytes(log[: limits.log_bytes]), _printed(limits))
        process.wait(timeout=max(0.0, until_s - time.monotonic()))
    except subprocess.TimeoutExpired:
        message = f"The code ran for more than {limits.wall_s:g} s and was ended."
        return Ended(bytes(log), _finding("Too slow", message, _LESS))
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
    return Ended(bytes(log), _problem(process.returncode, limits))


def _next(process: subprocess.Popen[bytes], patience_s: float) -> bytes:
    """What is printed next; empty at the end of all, or where nothing comes in time."""
    if process.stdout is None:
        return b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        ready = selector.select(max(0.0, patience_s))
    return os.read(process.stdout.fileno(), _CHUNK_BYTES) if ready else b""


def _printed(limits: Limits) -> Finding:
    message = f"The code printed more than {memory_text(limits.log_bytes)} and was ended."
    return _finding("Prints too much", message, "Leave print out of the code.")


def _problem(code: int, limits: Limits) -> Finding | None:
    number = -code if code < 0 else code - _BASE_OF_SIGNALS
    if number in (signal.SIGXCPU, signal.SIGKILL):
        message = f"The code used more than {limits.cpu_s} s of processor time, or all memory, and was ended."
        return _finding("Too slow", message, _LESS)
    if number > 0:
        name = signal.strsignal(number) or f"signal {number}"
        message = f"The code crashed its process ({name})."
        return _finding("Crashed", message, "Correct the code, or give a smaller network: memory is bounded.")
    if code not in _NORMAL:
        message = f"The code ended its process with code {code} before the network was exported."
        return _finding("Ended early", message, "Leave exits out of the code.")
    return None


def _finding(title: str, message: str, remedy: str) -> Finding:
    return Finding(title=title, field="code", message=message, remedy=remedy)
