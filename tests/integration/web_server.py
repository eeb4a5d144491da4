"""The routes of the dashboard, without its pages, in a process of their own."""

import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unifiednn_core.home import Home

ROOT = Path(__file__).parents[2]


@dataclass
class WebServer:
    """A server over one home; `kill` and `start` it at will."""

    home: Home
    port: int = 0
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", self.port))
            self.port = listening.getsockname()[1]
        command = [sys.executable, "-m", "tests.integration.web_server", str(self.home.root), str(self.port)]
        self.process = subprocess.Popen(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)})
        while True:
            try:
                self.ask("GET", "/files/runs/none.json")
                return
            except OSError:
                assert self.process.poll() is None, "the server did not start"
                time.sleep(0.05)

    def kill(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)

    def ask(
        self, method: str, path: str, body: Any = None, **headers: str
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        """Status, headers and body of an answer; `_` in a header's name stands for `-`."""
        connection = self.connection()
        connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return answer.status, answer.headers, content

    def peak_bytes(self) -> int:
        """Most memory that the server's process held since the last call of `forget_peak`."""
        assert self.process is not None
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return 1024 * int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])

    def forget_peak(self) -> None:
        assert self.process is not None
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")


def main(root: str, port: str) -> None:
    """Serve a home until the process ends."""
    import uvicorn
    from starlette.applications import Starlette

    from unifiednn_core.service import Service
    from unifiednn_core.web.guard import middleware
    from unifiednn_core.web.routes import routes

    service = Service.open(Home(Path(root)))
    app = Starlette(routes=routes(lambda request: service), middleware=middleware())
    uvicorn.run(app, host="127.0.0.1", port=int(port), log_level="error", ws="none", lifespan="off")


if __name__ == "__main__":
    main(*sys.argv[1:])
