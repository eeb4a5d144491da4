"""Starts workers, baselines and servers in a moment: the template of the tests' process forks them.

A new interpreter would spend two CPU seconds on loading. After the fork they are what the product makes of them:
separate processes, to be killed at will. Servers and commands borrow the template, and so its forks read their files.
"""

import os
import runpy
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

from unifiednn_core.base.clock import Clock
from unifiednn_core.base.paths import Home
from unifiednn_core.machine import forks
from unifiednn_core.preflight import client
from unifiednn_core.runtime.certifier import Certifier
from unifiednn_core.runtime.launchers import LocalLauncher
from unifiednn_core.runtime.supervisor import Supervisor
from unifiednn_core.service.facade import Service
from unifiednn_core.store import Store
from unifiednn_core.store.schema import HYBRID


class ForkingLauncher(LocalLauncher):
    """Has workers forked; `environment` is added to theirs."""

    def __init__(self, home: Home, environment: Mapping[str, str] | None = None):
        super().__init__(home)
        self._environment = environment if environment is not None else {}

    def start(self, run_id: str, threads: int, mode: str) -> int:
        self._home.run(run_id).mkdir(parents=True, exist_ok=True)
        return fork("worker" if mode == HYBRID else "baseline", self._home, run_id, self._environment)


class CertifierOnDemand(Certifier):
    """Makes certificates when a test asks for them (`settle`), so that they cost the others nothing."""

    def start(self) -> None: ...


class Borrowed:
    """The template of another process."""

    pid = None

    def __init__(self, control: socket.socket):
        self.control = control

    def start(self) -> None: ...

    stop = retire = start

    def ready(self) -> bool:
        return False

    def connect(self, *call: Any, **how: Any) -> socket.socket:
        return forks.connect(self.control, *call, **how)


def borrow(handle: int) -> None:
    """Let this process use the template at the other end of a socket."""
    borrowed: Any = Borrowed(socket.socket(fileno=handle))
    client.template, client.start, client.stop = borrowed, borrowed.start, borrowed.stop


def handle() -> int:
    """Descriptor of this process's end of the socket, to be lent."""
    template: Any = client.template
    return (template if isinstance(template, Borrowed) else template._running()).control.fileno()  # type: ignore[no-any-return]


def open_service(home: Home, environment: Mapping[str, str]) -> Service:
    clock = Clock()
    store = Store.open(home, clock)
    supervisor = Supervisor(store, ForkingLauncher(home, environment), clock)
    return Service(home, store, supervisor, clock, certifier=CertifierOnDemand(home, store, clock))


def fork(role: str, home: Home, run_id: str, environment: Mapping[str, str]) -> int:
    """Have a process forked that plays a role; returns its id."""
    how = (role, str(home.root), run_id, {**os.environ, **environment})
    with client.template.connect(f"{__name__}:play", *how, handles=(handle(),), stays=True) as channel:
        return int(channel.makefile("rb").readline())


class ForkedScript:
    """What a runner uses of `Popen`, for a script that is forked instead of executed."""

    def __init__(self, command: list[str], *, stdin: int, stdout: int, stderr: IO[bytes], env: Mapping[str, str]):
        self.returncode: int | None = None
        assert (stdin, stdout) == (subprocess.DEVNULL, subprocess.PIPE)
        reading, writing = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _become([os.open(os.devnull, os.O_RDONLY), writing, stderr.fileno()], env)
            sys.argv = command[2:]
            _run(lambda: runpy.run_module(command[2], run_name="__main__", alter_sys=True))
        os.close(writing)
        self.stdout = os.fdopen(reading, "rb")


def play(
    channel: socket.socket, handles: list[int], role: str, root: str, run_id: str, environment: Mapping[str, str]
) -> None:
    """Be a worker, a baseline or a server to its end."""
    channel.sendall(f"{os.getpid()}\n".encode())
    channel.close()
    if role == "worker":
        os.close(handles[0])
    else:
        borrow(handles[0])
    home = Home(Path(root))
    log = home.root / "server.log" if role == "server" else home.log(run_id)
    written = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    _become([os.open(os.devnull, os.O_RDONLY), written, written], environment)
    sys.argv = [role, root, run_id]

    def worker() -> None:
        from tests.integration import mishaps
        from unifiednn_core.runtime import worker

        mishaps.arm(os.environ, home.root)
        worker.main()

    def baseline() -> None:
        from unifiednn_core.compare import processes, runner

        processes.subprocess = SimpleNamespace(  # type: ignore[assignment]
            Popen=ForkedScript, PIPE=subprocess.PIPE, DEVNULL=subprocess.DEVNULL
        )
        runner.main()

    def server() -> None:
        service = open_service(home, {})
        service.start_supervisor()
        threading.Event().wait()

    _run({"worker": worker, "baseline": baseline, "server": server}[role])


def _become(handles: list[int], environment: Mapping[str, str]) -> None:
    """Take these as standard input, output and error, and these settings."""
    os.environ.clear()
    os.environ.update(environment)
    for place, number in enumerate(handles):
        os.dup2(number, place)


def _run(part: Callable[[], object]) -> None:
    """Play a role to its end as an interpreter would, and end this process."""
    code = 0
    try:
        part()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
