"""Starts workers, baselines and servers in a moment: a process that has loaded torch forks them.

A new interpreter would spend four CPU seconds on loading. After the fork they are what the product makes of them:
separate processes, to be killed at will.
"""

import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

from unifiednn_core.base.clock import RealClock
from unifiednn_core.base.paths import Home
from unifiednn_core.runtime.launchers import LocalLauncher
from unifiednn_core.runtime.supervisor import Supervisor
from unifiednn_core.service.facade import Service
from unifiednn_core.store import Store
from unifiednn_core.store.schema import HYBRID


class ZygoteLauncher(LocalLauncher):
    """Has workers forked; `environment` and the settings of this process are added to theirs."""

    def __init__(self, home: Home, zygote: Path, environment: Mapping[str, str]):
        super().__init__(home)
        self._zygote, self._environment = zygote, environment

    def start(self, run_id: str, threads: int, mode: str) -> int:
        self._home.run(run_id).mkdir(parents=True, exist_ok=True)
        settings = {name: value for name, value in os.environ.items() if name.startswith("UNIFIEDNN_")}
        role = "worker" if mode == HYBRID else "baseline"
        return ask(self._zygote, role, self._home, run_id, {**settings, **self._environment})


def open_service(home: Home, zygote: Path, environment: Mapping[str, str]) -> Service:
    clock = RealClock()
    store = Store.open(home, clock)
    return Service(home, store, Supervisor(store, ZygoteLauncher(home, zygote, environment), clock), clock)


def ask(zygote: Path, role: str, home: Home, run_id: str, environment: Mapping[str, str]) -> int:
    """Have a process forked that plays a role; returns its id."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(zygote))
        request = {"role": role, "home": str(home.root), "run_id": run_id, "environment": dict(environment)}
        connection.sendall(json.dumps(request).encode() + b"\n")
        return int(connection.recv(100))


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


def main(path: Path) -> None:
    """Listen at `path` until stdin is closed, which the death of the tests does, too."""
    import torch._dynamo  # the first optimizer would load it

    import unifiednn_core.compare.vanilla
    import unifiednn_core.runtime.worker

    del torch, unifiednn_core
    gc.freeze()  # a collection in a fork would copy every page that objects lie on
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # leaves no zombies behind
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while True:
            ready, _, _ = select.select([sys.stdin, listener], [], [])
            if sys.stdin in ready:
                return
            connection, _ = listener.accept()
            with connection, connection.makefile("rb") as lines:
                request = json.loads(lines.readline())
                pid = os.fork()
                if pid == 0:
                    listener.close()
                    connection.detach()
                    _play(path, request)
                connection.sendall(str(pid).encode())


def _play(zygote: Path, request: dict[str, Any]) -> None:
    home, run_id, role = Home(Path(request["home"])), request["run_id"], request["role"]
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    name = "server.log" if role == "server" else f"runs/{run_id}/worker.log"
    log = os.open(home.root / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    _become([os.open(os.devnull, os.O_RDONLY), log, log], request["environment"])
    sys.argv = [role, str(home.root), run_id]

    def worker() -> None:
        from tests.integration import mishaps
        from unifiednn_core.runtime import worker

        mishaps.arm(os.environ, home.root)
        worker.main()

    def baseline() -> None:
        from unifiednn_core.compare import processes, runner
        from unifiednn_core.preflight import client
        from unifiednn_core.preflight.oracle import ask_torch

        client.ask_torch = ask_torch  # an intake process would load torch again
        processes.subprocess = SimpleNamespace(  # type: ignore[assignment]
            Popen=ForkedScript, PIPE=subprocess.PIPE, DEVNULL=subprocess.DEVNULL
        )
        runner.main()

    def server() -> None:
        service = open_service(home, zygote, request["environment"])
        service.start_supervisor()
        threading.Event().wait()

    _run({"worker": worker, "baseline": baseline, "server": server}[role])


def _become(handles: list[int], environment: Mapping[str, str]) -> None:
    """Take these as standard input, output and error, and these settings."""
    os.environ.update(environment)
    for place, handle in enumerate(handles):
        os.dup2(handle, place)


def _run(play: Callable[[], object]) -> None:
    """Play a role to its end as an interpreter would, and end this process."""
    code = 0
    try:
        play()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
