"""Answers of a moment ago, shared by everyone who watches: eight viewers of a run cost about as much as one."""

import threading
import time
from collections.abc import Callable, Hashable
from typing import Any, TypeVar, cast

Answer = TypeVar("Answer")
MOST = 64
"""Answers kept at once."""


class Recent:
    """Keeps the last answers, by key. Safe to share between threads; a second asker waits for the first."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic):
        self._now_s, self._lock = now_s, threading.Lock()
        self._answers: dict[Hashable, tuple[float, Any]] = {}

    def within(self, age_s: float, key: Hashable, ask: Callable[[], Answer]) -> Answer:
        """The answer of at most this age, or a new one."""
        if age_s <= 0:
            return ask()
        with self._lock:
            asked_s, answer = self._answers.get(key, (-1e9, None))
            if self._now_s() - asked_s <= age_s:
                return cast("Answer", answer)
            asked_s = self._now_s()
            found = ask()
            self._answers.pop(key, None)
            self._answers[key] = (asked_s, found)
            while len(self._answers) > MOST:
                self._answers.pop(next(iter(self._answers)))
            return found

    def forget(self) -> None:
        """Ask anew from now on, because a person here changed something."""
        with self._lock:
            self._answers.clear()
