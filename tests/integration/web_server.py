"""The routes of the dashboard, without its pages, in a process of their own."""

import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.ports import free_port
from tests.waiting import wait_until
from unifiednn_core.base.paths import Home

ROOT = Path(__file__).parents[2]


@dataclass
class WebServer:
    """A server over one home; `kill` and `start` it at will."""

    home: Home
    port: int = 0
    process: subprocess.Popen[bytes] | None = None
    login: bool = False
    """Whether people have to sign in: then only tokens open it."""

    def start(self) -> None:
        self.port = self.port or free_port()
        command = [sys.executable, "-m", "tests.integration.web_server", str(self.home.root), str(self.port)]
        command += ["login"] if self.login else []
        self.process = subprocess.Popen(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)})
        wait_until(self._answers)

    def _answers(self) -> bool:
        assert self.process is not None and self.process.poll() is None, "the server did not start"
        with suppress(OSError):
            return bool(self.ask("GET", "/files/runs/none.json"))
        return False

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

    def begin(self, filename: str, size_bytes: int, **more: object) -> str:
        """Address of an upload that is begun."""
        body = json.dumps({"filename": filename, "size_bytes": size_bytes} | more)
        status, headers, content = self.ask("POST", "/files/uploads", body)
        assert status == 201, content
        return str(headers["Location"])

    def send(self, upload: str, offset: int, body: Any) -> tuple[int, int]:
        """Status of a PATCH, and where to go on."""
        status, headers, _ = self.ask("PATCH", upload, body, Upload_Offset=str(offset))
        return status, int(headers["Upload-Offset"] or -1)

    def offset(self, upload: str) -> int:
        return int(self.ask("HEAD", upload)[1]["Upload-Offset"])

    def peak_bytes(self) -> int:
        """Most memory that the server's process held since the last call of `forget_peak`."""
        assert self.process is not None
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return 1024 * int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])

    def forget_peak(self) -> None:
        assert self.process is not None
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")


def pieces(path: Path, size_bytes: int = 1024**2) -> Iterator[bytes]:
    """A file in pieces."""
    with path.open("rb") as file:
        while piece := file.read(size_bytes):
            yield piece


def main(root: str, port: str, *options: str) -> None:
    """Serve a home until the process ends."""
    import uvicorn
    from starlette.applications import Starlette

    from unifiednn_core.service.facade import Service
    from unifiednn_core.service.gate import Gate, Settings
    from unifiednn_core.web.guard import middleware
    from unifiednn_core.web.routes import routes

    service = Service.open(Home(Path(root)))
    gate = Gate(service, Settings(login="login" in options))
    app = Starlette(
        routes=routes(lambda request: gate.admit(request.headers, request.cookies), lambda: service),
        middleware=middleware(lambda: True),
    )
    uvicorn.run(app, host="127.0.0.1", port=int(port), log_level="error", ws="none", lifespan="off")


if __name__ == "__main__":
    main(*sys.argv[1:])
