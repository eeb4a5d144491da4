"""Answers of a moment ago, shared by everyone who watches: eight viewers of a run cost about as much as one."""

import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

Answer = TypeVar("Answer")
MOST = 64
"""Answers kept at once."""


class Recent:
    """Keeps the last answers, by key. Safe to share between threads; who asks second for a key waits for its answer."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic):
        self._now_s, self._lock = now_s, threading.Lock()
        self._answers: dict[Hashable, _Kept] = {}

    def within(self, age_s: float, key: Hashable, ask: Callable[[], Answer]) -> Answer:
        """The answer of at most this age, or a new one."""
        if age_s <= 0:
            return ask()
        with self._lock:
            kept = self._answers.pop(key, None) or _Kept()
            self._answers[key] = kept  # the newest last
            while len(self._answers) > MOST:
                self._answers.pop(next(iter(self._answers)))
        with kept.asking:  # of this key alone: a slow answer delays nobody who asks for something else
            if kept.asked_s is None or self._now_s() - kept.asked_s > age_s:
                asked_s = self._now_s()
                kept.answer = ask()
                kept.asked_s = asked_s
            return cast("Answer", kept.answer)

    def forget(self) -> None:
        """Ask anew from now on, because a person here changed something."""
        with self._lock:
            self._answers.clear()


@dataclass(slots=True)
class _Kept:
    asking: threading.Lock = field(default_factory=threading.Lock)
    asked_s: float | None = None
    answer: Any = None
