"""A receiver of webhooks on this machine."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Receiver:
    """What arrived, and how it is answered: a status, or `hang` to say nothing."""

    port: int = 0
    status: int = 200
    location: str = ""
    drip: threading.Event | None = None
    """While it is not set, the answer comes a byte at a time and never ends."""
    taken: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"


@contextmanager
def receiving() -> Iterator[Receiver]:
    """Serve a receiver as long as the block runs."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.taken.append((self.path, {name.lower(): value for name, value in self.headers.items()}, body))
            if receiver.drip is not None:
                try:
                    self.wfile.write(b"HTTP/1.1 200 OK\r\n")
                    for _ in iter(lambda: receiver.drip.wait(0.02), True):
                        self.wfile.write(b"X: y\r\n"[:1])
                        self.wfile.flush()
                except OSError:
                    receiver.drip.set()
                return
            self.send_response(receiver.status)
            if receiver.location:
                self.send_header("Location", receiver.location)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    receiver.port = server.server_port
    serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    serving.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        serving.join()
