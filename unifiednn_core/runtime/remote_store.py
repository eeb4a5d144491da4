"""The store as a worker on another machine sees it: each call goes through the relay to the server.

The worker is the same as at home. It reaches the relay by a socket in the folder of its hybrid, from inside its
sandbox, and each of its threads has a connection. While the server is away a call waits for it; training goes on.
"""

import itertools
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple
from multiprocessing.connection import Client
from pathlib import Path
from typing import Any, cast

from unifiednn_core.base.clock import Clock
from unifiednn_core.base.paths import Home
from unifiednn_core.runtime.calls import BRING, KEEP, NOW, REGISTER, WRITES, Call, opened
from unifiednn_core.store import Store
from unifiednn_core.store.database import Fence
from unifiednn_core.store.workers import WorkerIdentity

MOST_BYTES = 1 << 26
"""Of one call; a longer one ends the connection."""


def relay_socket(home: Home, hybrid_id: str) -> Path:
    """Where the relay of a hybrid listens."""
    return home.run(hybrid_id) / "relay"


@contextmanager
def short(address: Path) -> Iterator[str]:
    """The address of a socket in any folder, in less than the 108 bytes that the system allows. Raises `OSError`."""
    folder = os.open(address.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{address.name}"
    finally:
        os.close(folder)


class _ServersClock(Clock):
    """The clock of the server, as of the first call: moments in the store are by one clock."""

    def __init__(self) -> None:
        self._ahead_s = 0.0

    def set(self, utc_s: float, monotonic_s: float) -> None:
        """Set it: this was the server's time at this monotonic time."""
        self._ahead_s = utc_s - monotonic_s

    def utc_s(self) -> float:
        return self.monotonic_s() + self._ahead_s


class RemoteStore:
    """Stands for `Store` in a worker, and is its courier for files of sub-models, by key. Safe in any thread."""

    def __init__(self, address: Path):
        """Connect to the relay. Raises `OSError`."""
        self._address, self._connections = address, threading.local()
        self._numbers, self._writing = itertools.count(1), threading.Lock()
        self.clock = _ServersClock()
        asked_s = self.clock.monotonic_s()
        now_s = self.call(NOW)
        self.clock.set(now_s, (asked_s + self.clock.monotonic_s()) / 2)

    @classmethod
    def of(cls, home: Home, hybrid_id: str) -> "RemoteStore":
        """That of a worker that its relay has started. Raises `OSError`."""
        return cls(relay_socket(home, hybrid_id))

    @property
    def store(self) -> Store:
        """The type that a worker expects: what `calls` lists of a store is here."""
        return cast(Store, self)

    def __getattr__(self, part: str) -> Any:
        return _Part(self, part)

    def call(self, name: str, /, *arguments: Any, **named: Any) -> Any:
        """Have the server carry out a call; returns what it returns, and raises what it raises.

        One call that changes something follows the other: so the server can tell which it has carried out.
        """
        if name not in WRITES:
            return self._asked(Call(name, list(arguments), named))
        with self._writing:
            return self._asked(Call(name, list(arguments), named, next(self._numbers)))

    def raise_fence(self, fence: Fence) -> None:
        """The server checks the fence of each call."""

    def close(self) -> None:
        """Nothing to close: the connections end with the worker."""

    def bring(self, key: str) -> None:
        """Wait until this machine has what a sub-model needs.

        Raises `BadInput` if a file is lost, `NotFound` if the sub-model has left the hybrid, and `OSError`.
        """
        self.call(BRING, key)

    def keep(self, key: str, names: Sequence[str]) -> None:
        """Wait until files of a sub-model, by their places in the folder of its run, are whole on the server.

        Checkpoints are all that it has then; without names it has none. Raises `OSError`.
        """
        self.call(KEEP, key, list(names))

    def _asked(self, call: Call) -> Any:
        channel = getattr(self._connections, "channel", None)
        if channel is None:
            with short(self._address) as place:
                channel = self._connections.channel = Client(place, "AF_UNIX")
        channel.send_bytes(call.encoded())
        return opened(channel.recv_bytes())


class _Part:
    """A repository of the remote store."""

    def __init__(self, store: RemoteStore, name: str):
        self._store, self._name = store, name

    def __getattr__(self, method: str) -> Any:
        name = f"{self._name}.{method}"

        def call(*arguments: Any, **named: Any) -> Any:
            if name == REGISTER:  # the server knows the hybrid, and counts from its own launch
                worker = next(one for one in arguments if isinstance(one, WorkerIdentity))
                arguments, named = astuple(worker), {}
            return self._store.call(name, *arguments, **named)

        return call
