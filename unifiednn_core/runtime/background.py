"""A thread that looks again and again until it is stopped."""

import threading
from abc import ABC, abstractmethod


class Background(ABC):
    """Does its work in a thread of its own, which `start` begins. The process does not wait for it."""

    name: str
    """Of the thread."""
    patience_s: float | None = None
    """How long `stop` waits for what goes on; None for as long as it lasts."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Start the thread; idempotent."""
        if not self.alive:
            self._stop.clear()
            self._thread = threading.Thread(target=self._watch, name=self.name, daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop; what goes on is finished, or done later."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(self.patience_s)

    @abstractmethod
    def _watch(self) -> None:
        """Work until `_stop` is set."""
