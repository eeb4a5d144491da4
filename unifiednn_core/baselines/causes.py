"""Why a script ended without its weights, as people read it."""

import re
import signal
from pathlib import Path

TAIL_BYTES = 16_384
_ERROR = re.compile(r"^(?:[a-zA-Z_]\w*\.)*([A-Z]\w*): (.*)$")
_NO_MEMORY = ("out of memory", "OutOfMemoryError", "MemoryError", "not enough memory", "can't allocate memory",
              "Cannot allocate memory", "bad_alloc", "CUBLAS_STATUS_ALLOC_FAILED")  # fmt: skip
_OWN_WORDS = frozenset({"Diverged", "BadInput", "BadCheckpoint", "HostileFile"})
_SMALLER = "Give it smaller batches or a larger batch split"


def cause_of(mode: str, code: int, last_line: str, log: str) -> tuple[str, str]:
    """Cause and remedy of a script that ended with `code`; `log` names the file with everything that it printed."""
    look = f"The whole of what it printed is in {log}."
    if code == -signal.SIGKILL:
        return (
            f"{mode} does not fit, it seems: the process was killed by signal 9 (SIGKILL), most likely because memory "
            "ran out.",
            f"{_fewer(mode)} {look}",
        )
    if any(words in last_line for words in _NO_MEMORY):
        return f"{mode} does not fit: {last_line}", f"{_fewer(mode)} {look}"
    if code < 0:
        return f"The process was killed by signal {-code} ({_signal_name(-code)}).", f"Run it again. {look}"
    if not last_line:
        return f"The process ended with exit code {code} before its weights were written.", f"Run it again. {look}"
    found = _ERROR.match(last_line)
    if found is None:
        cause = f"The process ended with exit code {code}: {last_line}"
    else:
        kind, text = found.groups()
        cause = text if kind in _OWN_WORDS else f"{kind}: {text}"
    diverged = found is not None and found[1] == "Diverged"
    remedy = "Give it a smaller learning rate, in the hybrid too." if diverged else "Correct it, then run it again."
    return cause, f"{remedy} {look}"


def last_line(log: Path) -> str:
    """Last line that says something in a log, of an error in several lines the first; empty where there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - TAIL_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    said = [line.strip() for line in lines if line.strip()]
    errors = [line.strip() for line in lines if _ERROR.match(line)]  # a traceback ends with one that is not indented
    return (errors or said or [""])[-1]


def _fewer(mode: str) -> str:
    if mode == "concurrent":
        return f"The sequential baseline trains one at a time and needs less. Or: {_SMALLER[0].lower()}{_SMALLER[1:]}."
    return f"{_SMALLER}, in the hybrid too, or free memory on this machine."


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"
