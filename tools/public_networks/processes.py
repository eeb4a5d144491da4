"""Work in forks of this process, which has loaded torch: modules of two repositories never meet."""

import os
import pickle
import resource
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tools.machine import ToolFailed

Value = TypeVar("Value")


def forked(work: Callable[[], Value], cpu_s: int) -> Value:
    """Run `work` in a fork with at most so many seconds of CPU; raises `ToolFailed` with the reason if that fails."""
    with tempfile.NamedTemporaryFile(prefix="public-networks-", suffix=".answer") as file:
        child = os.fork()
        if child == 0:
            _work(work, cpu_s, Path(file.name))
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        answer = Path(file.name).read_bytes()
    if not answer:
        limit = f": it took more than {cpu_s} s of CPU" if status == -signal.SIGXCPU else ""
        raise ToolFailed(f"The process ended with code {status}{limit}.")
    well, value = pickle.loads(answer)  # noqa: S301 - of this very program
    if not well:
        raise ToolFailed(value)
    found: Value = value
    return found


def _work(work: Callable[[], Value], cpu_s: int, answer: Path) -> None:
    try:
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 5))
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1), os.dup2(silent, 2)
        answer.write_bytes(pickle.dumps((True, work())))
    except BaseException as error:  # the code of other authors may raise anything
        place = traceback.extract_tb(error.__traceback__)[-1]
        text = f"{type(error).__name__}: {str(error).strip()[:400]} ({Path(place.filename).name}:{place.lineno})"
        answer.write_bytes(pickle.dumps((False, text)))
    finally:
        sys.stdout.flush()
        os._exit(0)
