"""A split holds back what is sent, in each direction by itself, and loses nothing."""

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, suppress

import pytest

from tools.chaos.cluster.proxy import Proxy

SOON_S, LONG_S = 0.15, 30.0


@pytest.fixture
def heard() -> list[bytes]:
    """What the server heard."""
    return []


@pytest.fixture
def proxy(heard: list[bytes]) -> Iterator[Proxy]:
    """A proxy before a server that answers each word with itself."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def echo(connection: socket.socket) -> None:
            with connection:
                while data := connection.recv(100):
                    heard.append(data)
                    connection.sendall(data)

        def serve() -> None:
            with suppress(OSError):
                for connection, _ in iter(listener.accept, None):
                    threading.Thread(target=echo, args=(connection,), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        with closing(Proxy("127.0.0.1", listener.getsockname()[1])) as proxy:
            yield proxy
        listener.shutdown(socket.SHUT_RDWR)


def connect(proxy: Proxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=LONG_S)


def is_silent(client: socket.socket) -> bool:
    client.settimeout(SOON_S)
    try:
        client.recv(1)
    except TimeoutError:
        return True
    finally:
        client.settimeout(LONG_S)
    return False


def test_what_is_sent_arrives(proxy: Proxy) -> None:
    with connect(proxy) as client:
        client.sendall(b"one")
        assert client.recv(10) == b"one"


@pytest.mark.parametrize(("to_server", "to_client"), [(True, True), (True, False), (False, True)])
def test_nothing_passes_a_split_and_nothing_is_lost(
    proxy: Proxy, heard: list[bytes], to_server: bool, to_client: bool
) -> None:
    with connect(proxy) as client:
        client.sendall(b"one")
        assert client.recv(10) == b"one"
        proxy.split(to_server=to_server, to_client=to_client)
        client.sendall(b"two")
        assert is_silent(client)
        assert heard == ([b"one"] if to_server else [b"one", b"two"])  # it may be done, and the client not know it
        proxy.heal()
        assert client.recv(10) == b"two"


def test_a_new_connection_waits_for_the_end_of_a_split(proxy: Proxy) -> None:
    proxy.split()
    with connect(proxy) as client:
        client.sendall(b"one")
        assert is_silent(client)
        proxy.heal()
        assert client.recv(10) == b"one"


def test_an_end_passes_too(proxy: Proxy) -> None:
    with connect(proxy) as client:
        client.sendall(b"one")
        client.shutdown(socket.SHUT_WR)
        assert client.recv(10) == b"one"
        assert client.recv(10) == b""


def test_a_reset_ends_all_connections_and_new_ones_work(proxy: Proxy) -> None:
    with connect(proxy) as client:
        client.sendall(b"one")
        assert client.recv(10) == b"one"
        proxy.reset()
        with pytest.raises(ConnectionError):
            client.recv(10)
            client.sendall(b"two")
            client.recv(10)
            raise ConnectionError  # an orderly end is as good
    with connect(proxy) as client:
        client.sendall(b"three")
        assert client.recv(10) == b"three"


def test_nobody_waits_for_ever_before_a_server_that_is_gone() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    # The reset may come so early that connect() itself reports it.
    with closing(Proxy("127.0.0.1", port)) as proxy, suppress(ConnectionError), connect(proxy) as client:
        assert client.recv(10) == b""
