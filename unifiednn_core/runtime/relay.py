"""The relay: a Ray actor on a node. It runs one worker, and carries its calls, its files and its log to the driver.

It decides nothing and keeps nothing that counts: a call waits here until the driver has answered it, so a driver that
starts anew finds what the last one has not answered. The worker is the same process as at home, in a folder of this
node, and dies with this one. This file does not import Ray; the driver makes an actor of the class.
"""

import hashlib
import itertools
import os
import shutil
import threading
import time
from collections.abc import Collection
from contextlib import suppress
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

from unifiednn_core.base.files import file_sha256, move, open_plain, plain_folder, set_private_umask
from unifiednn_core.base.paths import Home
from unifiednn_core.machine.devices import devices_of_host
from unifiednn_core.machine.versions import versions
from unifiednn_core.runtime.launchers import LocalLauncher
from unifiednn_core.runtime.remote_store import MOST_BYTES, relay_socket, short
from unifiednn_core.spec.devices import CUDA, Device

PART_BYTES = 8 * 1024 * 1024
"""Files travel in parts of this size."""
WAIT_S = 1.0
"""How long a poll waits for news."""
LOG_BYTES = 256 * 1024
ALONE_S = 15.0
"""A relay whose worker has ended, and which owes nothing, ends if no driver asks for so long."""
MOST_THREADS = 100
UNUSED_S = 7 * 86400.0
"""Files that no worker of this node has used for so long are deleted."""


class NodeFacts(NamedTuple):
    """What a node has."""

    devices: list[Device]
    versions: dict[str, str]
    problems: list[str]
    """Why it cannot be used, as sentences."""


def probe(gpus: int) -> NodeFacts:
    """Look at the machine of a node, of which Ray may use so many GPUs. Runs there as a task."""
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)  # Ray hides them from a task that asks for none
    found = devices_of_host()
    shown = [one for one in found if one.type == CUDA][:gpus]
    problems = []
    if len({one.kind for one in shown}) > 1:
        problems = ["It has GPUs of several kinds, and Ray chooses among them. Start one Ray node for each kind."]
    return NodeFacts([*shown, *(one for one in found if one.type != CUDA)], versions(), problems)


class News(NamedTuple):
    """What a poll gives."""

    calls: list[tuple[int, bytes]]
    """Calls that wait for an answer, without those that the driver knows, by a number of this relay."""
    log_from: int
    log: bytes
    """The log from this byte on."""
    exit_code: int | None
    """Of the worker; None while it runs."""
    died_at: str | None
    """What the worker did last, as text of `store.places`, once it has ended."""


class Relay:
    """Runs a worker. All methods may be called at once."""

    def __init__(self, folder: str, hybrid_id: str):
        """Empty the folders of the runs on this node; `folder` is the home of its workers, in that of its user."""
        set_private_umask()
        self._home, self._hybrid_id = Home(Home.default().root / folder).create(), hybrid_id
        self._launcher = LocalLauncher(self._home, relayed=True)
        self._calls: dict[int, tuple[bytes, SimpleQueue[bytes]]] = {}
        self._numbers = itertools.count(1)
        self._news = threading.Condition()
        self._begun = False
        self._polled_at_s = time.monotonic()
        self._logged_bytes = 0
        self._ended: int | None = None
        shutil.rmtree(self._home.run(hybrid_id), ignore_errors=True)
        _forget_unused(self._home)

    def start(self, threads: int, mode: str) -> None:
        """Start the worker, once. Raises `OSError`."""
        with self._news:
            if self._begun:
                return
            self._begun = True
        address = relay_socket(self._home, self._hybrid_id)
        address.parent.mkdir(parents=True, exist_ok=True)
        with short(address) as place:
            listening = Listener(place, "AF_UNIX")
        threading.Thread(target=self._accept, args=(listening,), daemon=True).start()
        # A worker dies with the thread that started it, so that has to live as long as this process.
        threading.Thread(target=self._run, args=(threads, mode), daemon=True).start()

    def poll(self, known: Collection[int], log_from: int | None) -> News:
        """Wait a moment for news that the driver does not know. To a new one, the log goes on where it was."""
        with self._news:
            self._polled_at_s = time.monotonic()
            self._logged_bytes = self._logged_bytes if log_from is None else log_from
            self._news.wait_for(lambda: self._ended is not None or self._calls.keys() - set(known), WAIT_S)
            calls = [(number, frame) for number, (frame, _) in self._calls.items() if number not in known]
            ended = self._ended
        died_at = None if ended is None else self._launcher.last_mark(self._hybrid_id)
        return News(calls, self._logged_bytes, self._log(), ended, died_at)

    def answer(self, number: int, answer: bytes) -> None:
        """Give the worker the answer to a call."""
        with self._news:
            _, waiting = self._calls.pop(number, (b"", None))
        if waiting is not None:
            waiting.put(answer)

    # -- files

    def has(self, sha256: str) -> bool:
        """Whether this node has a file, which then stays here for a while."""
        with suppress(OSError):
            os.utime(self._home.file(sha256))
        return self._home.file(sha256).is_file()

    def empty(self, run_id: str, name: str) -> None:
        """Delete the checkpoints that this node has of a sub-model: those of the server count. Raises `OSError`."""
        self._home.run(run_id).mkdir(parents=True, exist_ok=True)
        with plain_folder(self._home.run(run_id), "checkpoints", name, make=True) as folder:
            for old in os.scandir(folder):
                os.unlink(old.name, dir_fd=folder)

    def write(self, sha256: str, offset: int, part: bytes, place: tuple[str, str] | None = None) -> None:
        """Write a part of a file, in order; an empty part ends it. Raises `OSError` if it is not what it should be.

        Files lie by content, or at a `place`: a run and a name in its folder.
        """
        asked = "" if place is None else hashlib.sha256("/".join(place).encode()).hexdigest()
        temporary = self._home.quarantine / f"{self._hybrid_id}.{sha256}.{asked}"  # where no worker may write
        with temporary.open("ab" if offset else "wb") as file:
            file.truncate(offset)
            file.write(part)
        if part:
            return
        if file_sha256(temporary) != sha256:
            temporary.unlink()
            raise OSError(None, f"The file {sha256[:12]} arrived damaged")
        if place is None:
            move(temporary, self._home.file(sha256))
            return
        *folders, last = Path(place[1]).parts
        with plain_folder(self._home.run(place[0]), *folders, make=True) as folder:
            os.rename(temporary, last, dst_dir_fd=folder)

    def describe(self, run_id: str, name: str) -> str:
        """SHA-256 of a file that the worker has written. Raises `OSError`."""
        os.utime(self._home.run(run_id))  # so that nobody takes it for unused
        with os.fdopen(open_plain(self._home.run(run_id), name), "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def read(self, run_id: str, name: str, offset: int) -> bytes:
        """A part of a file that the worker has written; empty at its end. Raises `OSError`."""
        with os.fdopen(open_plain(self._home.run(run_id), name), "rb") as file:
            file.seek(offset)
            return file.read(PART_BYTES)

    # -- the worker

    def _run(self, threads: int, mode: str) -> None:
        code: int | None = -1
        try:
            self._launcher.start(self._hybrid_id, threads, mode)
            while (code := self._launcher.exit_code(self._hybrid_id)) is None:
                os.utime(self._home.run(self._hybrid_id))
                time.sleep(0.1)
        except OSError as error:
            with self._home.log(self._hybrid_id).open("a") as log:
                log.write(f"The worker could not be started: {error.strerror or error}.\n")
        finally:
            with self._news:
                self._ended = code
                self._news.notify_all()
        while self._calls or time.monotonic() - self._polled_at_s < ALONE_S:
            time.sleep(1.0)
        os._exit(0)  # Ray may give the device to others

    def _accept(self, listening: Listener) -> None:
        while True:
            channel = listening.accept()
            if threading.active_count() > MOST_THREADS:  # no worker of ours has so many
                channel.close()
                continue
            threading.Thread(target=self._carry, args=(channel,), daemon=True).start()

    def _carry(self, channel: "Connection[bytes, bytes]") -> None:
        """Carry the calls of one thread of the worker."""
        with channel, suppress(OSError, EOFError):
            while True:
                frame, waiting = channel.recv_bytes(MOST_BYTES), SimpleQueue[bytes]()
                with self._news:
                    self._calls[next(self._numbers)] = frame, waiting
                    self._news.notify_all()
                channel.send_bytes(waiting.get())

    def _log(self) -> bytes:
        try:
            with os.fdopen(open_plain(self._home.run(self._hybrid_id), "worker.log"), "rb") as file:
                file.seek(self._logged_bytes)
                return file.read(LOG_BYTES)
        except OSError:
            return b""


def _forget_unused(home: Home) -> None:
    """Delete files and folders of runs that nothing has used for a while."""
    before_s = time.time() - UNUSED_S
    for path in [
        one
        for folder in ("files/*", "quarantine", "runs", "hybrids", "shared")
        for one in home.root.glob(f"{folder}/*")
    ]:
        with suppress(OSError):
            if path.stat().st_mtime < before_s:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
