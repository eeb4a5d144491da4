"""Ports of this machine for servers that cannot be handed a socket."""

import socket

_HELD: list[socket.socket] = []


def free_port() -> int:
    """A port that nobody gets until this process ends, except who asks for it by its number with SO_REUSEADDR."""
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    _HELD.append(held)
    port: int = held.getsockname()[1]
    return port
