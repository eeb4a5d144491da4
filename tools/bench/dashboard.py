"""A dashboard in a process of its own on a free port, for benches."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.machine import ToolFailed

_ROOT = Path(__file__).parents[2]
_PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class Dashboard:
    """A server that answers."""

    port: int
    pid: int

    @property
    def address(self) -> str:
        """Of its first page."""
        return f"http://127.0.0.1:{self.port}"


@contextlib.contextmanager
def served(home: Path) -> Iterator[Dashboard]:
    """Serve a home until the end of the block; raises `ToolFailed` if the server does not answer."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
    command = [sys.executable, "-m", "streamlit", "run", "app.py", "--server.port", str(port)]
    environment = dict(os.environ, UNIFIEDNN_HOME=str(home))
    for name in ("UNIFIEDNN_DATABASE_URL", "OMP_NUM_THREADS"):
        environment.pop(name, None)
    with (home / "server.log").open("ab") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=_ROOT)
    try:
        _answers(port, process)
        yield Dashboard(port, process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()


def _answers(port: int, process: "subprocess.Popen[bytes]") -> None:
    until_s = time.monotonic() + _PATIENCE_S
    while time.monotonic() < until_s and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise ToolFailed("The dashboard did not start.")
