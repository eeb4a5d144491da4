"""Workers and servers in a moment: a process that has loaded everything forks them, where a new interpreter would load
it all again. From there on they are what the product makes of them: processes of their own, to be killed at will.
"""

import json
import os
import select
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Mapping
from pathlib import Path

from unifiednn_core.base.clock import RealClock
from unifiednn_core.base.paths import Home
from unifiednn_core.runtime.launchers import LocalLauncher
from unifiednn_core.runtime.supervisor import Supervisor
from unifiednn_core.service.facade import Service
from unifiednn_core.store import Store


class ZygoteLauncher(LocalLauncher):
    """Has workers forked; `environment` is added to theirs."""

    def __init__(self, home: Home, zygote: Path, environment: Mapping[str, str]):
        super().__init__(home)
        self._zygote, self._environment = zygote, environment

    def start(self, run_id: str, threads: int, mode: str) -> int:
        self._home.run(run_id).mkdir(parents=True, exist_ok=True)
        return ask(self._zygote, "worker", self._home, run_id, self._environment)


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


def main(path: Path) -> None:
    """Listen at `path` until stdin is closed, which the death of the tests does, too."""
    import torch._dynamo  # the first optimizer would load it

    import unifiednn_core.runtime.worker

    del torch, unifiednn_core
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


def _play(zygote: Path, request: dict[str, object]) -> None:
    home, run_id = Home(Path(str(request["home"]))), str(request["run_id"])
    try:
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.environ.update(request["environment"])  # type: ignore[call-overload]
        name = f"runs/{run_id}/worker.log" if request["role"] == "worker" else "server.log"
        log = os.open(home.root / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        for place, handle in enumerate((os.open(os.devnull, os.O_RDONLY), log, log)):
            os.dup2(handle, place)
        if request["role"] == "worker":
            from tests.integration import mishaps
            from unifiednn_core.runtime import worker

            mishaps.arm(os.environ, home.root)
            sys.argv = ["worker", str(home.root), run_id]
            worker.main()
        service = open_service(home, zygote, request["environment"])  # type: ignore[arg-type]
        service.start_supervisor()
        threading.Event().wait()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(1)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
