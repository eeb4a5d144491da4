"""Waiting for what other threads and processes do: with a limit, and with words for what did not come."""

import inspect
import time
from collections.abc import Callable
from typing import Any, TypeVar

PATIENCE_S = 150.0
"""Beside other work everything takes its time; a worker that never came up is given up after 120 s."""
Found = TypeVar("Found")


def wait_until(
    done: Callable[[], Found | None],
    what: str = "",
    patience_s: float = PATIENCE_S,
    *,
    pause: Callable[[float], object] = time.sleep,
    told: Callable[[], object] = str,
) -> Found:
    """Return what `done` gives once it is true; else fail with `what` or its source, and with what is `told`."""
    deadline_s, each_s = time.monotonic() + patience_s, 0.002
    while not (found := done()):
        if time.monotonic() > deadline_s:
            raise AssertionError(f"{what or _source(done)} did not come true within {patience_s:g} s\n{told()}")
        pause(each_s)
        each_s = min(0.1, 1.3 * each_s)  # what takes long is not asked for all the time
    return found


def _source(done: Callable[..., Any]) -> str:
    try:
        return inspect.getsource(done).strip()
    except (OSError, TypeError):
        return repr(done)
