"""A network between one host and a database that can be split, in one direction or both."""

import socket
import struct
import threading
from contextlib import suppress

_AT_ONCE_BYTES = 1 << 16
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: on, 0 s; closing then resets the connection
_WAIT_S = 10.0


class Proxy:
    """Forwards connections to a server.

    While a direction is split nothing passes there: what was sent waits, as TCP keeps it, and arrives after `heal`.
    No end learns of the split but by its own timeouts. New connections are taken, and wait likewise.
    """

    def __init__(self, host: str, port: int):
        """Listens on a free port of the loopback, at `port`."""
        self._server = host, port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._to_server, self._to_client = threading.Event(), threading.Event()
        """Set while the direction is open."""
        self._sockets: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._closed = False
        self.heal()
        threading.Thread(target=self._accept, name=f"proxy {self.port}", daemon=True).start()

    def split(self, *, to_server: bool = True, to_client: bool = True) -> None:
        """Hold back what goes in these directions."""
        for direction, held in ((self._to_server, to_server), (self._to_client, to_client)):
            if held:
                direction.clear()
            else:
                direction.set()

    def heal(self) -> None:
        """Let everything pass; what was held back arrives first."""
        self._to_server.set()
        self._to_client.set()

    def reset(self) -> None:
        """Reset all connections, as a router does that has forgotten them."""
        with self._lock:
            ends, self._sockets = self._sockets, set()
        for end in ends:
            _reset(end)

    def close(self) -> None:
        """Stop for good."""
        self._closed = True
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes `accept`
        self._listener.close()
        self.heal()
        self.reset()

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        """Carry one connection to its end."""
        self._to_server.wait()
        try:
            server = socket.create_connection(self._server, timeout=_WAIT_S)
        except OSError:
            _reset(client)
            return
        server.settimeout(None)
        for end in (client, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._lock:
            self._sockets |= {client, server}
        back = threading.Thread(target=_pump, args=(server, client, self._to_client), daemon=True)
        back.start()
        _pump(client, server, self._to_server)
        back.join()
        with self._lock:
            self._sockets -= {client, server}
        for end in (client, server):
            end.close()


def _pump(source: socket.socket, sink: socket.socket, gate: threading.Event) -> None:
    """Pass on what comes, and the end of it, while the gate is open."""
    try:
        while data := source.recv(_AT_ONCE_BYTES):
            gate.wait()
            sink.sendall(data)
        gate.wait()
        sink.shutdown(socket.SHUT_WR)
    except OSError:  # reset by an end, or by us
        gate.wait()
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


def _reset(end: socket.socket) -> None:
    with suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        end.shutdown(socket.SHUT_RDWR)  # wakes who reads it
    end.close()
