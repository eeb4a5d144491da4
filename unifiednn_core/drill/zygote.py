"""A process that has torch loaded and forks others: `python -m unifiednn_core.drill.zygote SOCKET`.

Loading torch takes seconds, a fork milliseconds. It has one thread and runs nothing of torch, so that its forks are as
good as new interpreters. It ends, with all its children, when its standard input is closed.
"""

import importlib
import json
import os
import selectors
import signal
import socket
import sys
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from unifiednn_core.drill.journal import Entry, Role
from unifiednn_core.drill.requests import Request, read_request
from unifiednn_core.drill.roles import play, role_of
from unifiednn_core.drill.scene import Scene

Job = Callable[[], int]
READY = b"ready\n"
_LOADED_LATE = ("torch._dynamo", "torch.export", "safetensors.torch", "unifiednn_core.intake.exported")


@dataclass(frozen=True, slots=True)
class Child:
    """A fork that has not ended."""

    role: Role
    scene: Scene
    number: int


class Zygote:
    """Answers one request after the other; forks, kills and reaps."""

    def __init__(self, socket_path: Path):
        self._socket_path = socket_path
        self._children: dict[int, Child] = {}
        self._codes: dict[int, int] = {}
        self._next_workers: deque[Request] = deque()

    def serve(self) -> Job | None:
        """Serve until standard input is closed. In a fork it returns what the fork has to be."""
        with ExitStack() as stack:
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(str(self._socket_path))
            listener.listen(64)
            woken, wake = (stack.enter_context(end) for end in socket.socketpair())
            for end in (woken, wake):
                end.setblocking(False)
            signal.signal(signal.SIGCHLD, lambda *_: None)
            for number in (signal.SIGINT, signal.SIGTERM):  # the drill gets them, too, and then closes standard input
                signal.signal(number, signal.SIG_IGN)
            signal.set_wakeup_fd(wake.fileno())
            selector = stack.enter_context(selectors.DefaultSelector())
            for source in (listener, woken, sys.stdin):
                selector.register(source, selectors.EVENT_READ)
            os.write(1, READY)
            while True:
                ready = {key.fileobj for key, _ in selector.select()}
                if woken in ready:
                    woken.recv(4096)
                self._reap()
                if sys.stdin in ready:
                    self._end_all()
                    return None
                if listener in ready:
                    connection, _ = listener.accept()
                    job = None
                    with connection, suppress(OSError, ValueError):  # whoever asked may have been killed meanwhile
                        job = self._answer(connection)
                    if job is not None:
                        return job

    def _answer(self, connection: socket.socket) -> Job | None:
        request = read_request(connection)
        match request.do:
            case "next_worker":
                if request.number == 0:
                    self._next_workers.clear()
                self._next_workers.append(request)
                value: int | None = 1
            case "kill":
                value = self._kill(request)
            case "code":
                value = self._codes.get(request.pid)
            case _:
                asked = self._with_its_fate(request) if request.do == "worker" else request
                value = self._fork(asked)
                if value == 0:
                    return lambda: play(asked, self._socket_path)
        connection.sendall(json.dumps(value).encode())
        return None

    def _with_its_fate(self, request: Request) -> Request:
        """Add to a worker what was planned for it; where nothing was, it trains in peace."""
        if not self._next_workers:
            return request
        fate = self._next_workers.popleft()
        return replace(fate, do="worker", folder=request.folder, run_id=request.run_id, threads=request.threads)

    def _fork(self, request: Request) -> int:
        pid = os.fork()
        if pid:
            child = Child(role_of(request), Scene(Path(request.folder)), request.number)
            self._children[pid] = child
            entry = Entry(what="started", role=child.role, pid=pid, number=request.number,
                          fresh=request.fresh)  # fmt: skip
            child.scene.journal.write(entry)
        return pid

    def _kill(self, request: Request) -> int:
        """Send a signal to a child; it cannot be another process, because nobody else reaps them."""
        child = self._children.get(request.pid)
        if child is None:
            return 0
        action = signal.Signals(request.signal).name.lower()
        child.scene.journal.write(Entry(what="shot", role=child.role, pid=request.pid, number=child.number,
                                        action=action))  # fmt: skip
        os.kill(request.pid, request.signal)
        return 1

    def _reap(self) -> None:
        while self._children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            code, child = os.waitstatus_to_exitcode(status), self._children.pop(pid)
            self._codes[pid] = code
            if child.scene.folder.is_dir():
                child.scene.journal.write(Entry(what="ended", role=child.role, pid=pid, number=child.number, code=code))

    def _end_all(self) -> None:
        for pid in self._children:
            os.kill(pid, signal.SIGKILL)
        for pid in self._children:
            os.waitpid(pid, 0)


def main() -> None:
    """Load, then serve on the socket named on the command line."""
    for name in _LOADED_LATE:
        importlib.import_module(name)
    job = Zygote(Path(sys.argv[1])).serve()
    if job is not None:
        code = job()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
