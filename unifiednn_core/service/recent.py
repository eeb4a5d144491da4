"""Answers of a moment ago, shared by everyone who watches: eight viewers of a run cost about as much as one."""

import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

Answer = TypeVar("Answer")
LINGER_S = 5.0
"""How long an answer is kept beyond its age, for the next one who asks."""


class Recent:
    """Keeps the last answers, by key. Safe to share between threads; who asks second for a key waits for its answer."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic):
        self._now_s, self._lock = now_s, threading.Lock()
        self._answers: dict[Hashable, _Kept] = {}

    def within(self, age_s: float, key: Hashable, ask: Callable[[], Answer]) -> Answer:
        """The answer of at most this age, or a new one."""
        if age_s <= 0:
            return ask()
        arrived_s = self._now_s()
        with self._lock:
            self._drop_old(arrived_s)
            kept = self._answers.setdefault(key, _Kept())
            kept.wanted_until_s = max(kept.wanted_until_s, arrived_s + age_s + LINGER_S)
        with kept.asking:  # of this key alone: a slow answer delays nobody who asks for something else
            # One that came while this caller waited is new enough, however long it took.
            if kept.answered_s is None or (kept.answered_s < arrived_s and arrived_s - kept.answered_s > age_s):
                kept.answer = ask()
                kept.answered_s = self._now_s()
            return cast("Answer", kept.answer)

    def forget(self) -> None:
        """Ask anew from now on, because a person here changed something."""
        with self._lock:
            self._answers.clear()

    def _drop_old(self, now_s: float) -> None:
        """A view of a long run is tens of MiB: none stays for longer than somebody watches it."""
        for key in [key for key, kept in self._answers.items() if kept.wanted_until_s < now_s]:
            del self._answers[key]


@dataclass(slots=True)
class _Kept:
    asking: threading.Lock = field(default_factory=threading.Lock)
    answered_s: float | None = None
    wanted_until_s: float = 0.0
    answer: Any = None
