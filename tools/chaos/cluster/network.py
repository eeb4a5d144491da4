"""What lies between the hosts and their store, and can fail: a SQLite file that is locked, a server, its network."""

import signal
import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit, urlunsplit

from tools.chaos.cluster.plan import HOSTS, Lease, Strike
from tools.chaos.cluster.proxy import Proxy
from tools.chaos.rows import SQLITE, change, rows

LOOPBACK = "127.0.0.1"
End = Callable[[], None]
"""Ends a fault."""


class Network(Protocol):
    """The way from each host to the store of one exercise."""

    def url(self, host: str) -> str:
        """Address of the store as a host knows it; for "" that of the server's machine, which no fault meets."""
        ...

    def strike(self, strike: Strike) -> End | None:
        """Let a fault happen; returns what ends it, or None if there was nothing that it could meet."""
        ...

    def close(self) -> None:
        """End all faults."""
        ...


class LocalFile:
    """A SQLite file on the one machine of all hosts."""

    def __init__(self, path: Path):
        self._path = path

    def url(self, host: str) -> str:
        """The same for everybody."""
        return f"{SQLITE}{self._path}"

    def strike(self, strike: Strike) -> End | None:
        """Hold its write lock."""
        holder = sqlite3.connect(self._path, isolation_level=None, timeout=1.0)
        try:
            holder.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            holder.close()
            return None
        return holder.close

    def close(self) -> None:
        """Nothing is open."""


class Server(Protocol):
    """A PostgreSQL server of the drill's own."""

    port: int

    def url(self, database: str) -> str: ...  # noqa: D102

    def create(self, database: str) -> str: ...  # noqa: D102

    def drop(self, database: str) -> None: ...  # noqa: D102

    def start(self) -> None: ...  # noqa: D102

    def stop(self, how: signal.Signals = ...) -> None: ...  # noqa: D102


class ToServer:
    """A PostgreSQL server, to which each host has a connection of its own that can be split."""

    def __init__(self, server: Server, database: str, lease: Lease):
        self._server, self._address = server, server.url(database)
        self._database, self._lease = database, lease
        self._proxies: Mapping[str, Proxy] = {host: Proxy(LOOPBACK, server.port) for host in HOSTS}

    def url(self, host: str) -> str:
        """Through the proxy of a host; directly for the server's machine."""
        if not host:
            return self._address
        parts = urlsplit(self._address)
        user = parts.netloc.rpartition("@")[0]
        netloc = f"{user}{'@' * bool(user)}{LOOPBACK}:{self._proxies[host].port}"
        return urlunsplit(parts._replace(netloc=netloc, query=self._soon()))

    def strike(self, strike: Strike) -> End | None:
        """End a connection, split a host off, or let the server crash."""
        match strike.kind:
            case "connection":
                return self._end_one(strike.share)
            case "split":
                proxy = self._proxies[strike.host]
                proxy.split(to_server=strike.to_server, to_client=strike.to_client)
                return lambda: _heal(proxy, reset=strike.reset)
            case _:
                self._server.stop(signal.SIGQUIT)
                return self._server.start

    def close(self) -> None:
        """Close the proxies, and delete the database."""
        for proxy in self._proxies.values():
            proxy.close()
        self._server.drop(self._database)

    def _end_one(self, share: float) -> End | None:
        own = "SELECT pid FROM pg_stat_activity WHERE datname = ? AND pid <> pg_backend_pid() ORDER BY pid"
        pids = [pid for (pid,) in rows(self._address, own, self._database)]
        if not pids:
            return None
        change(self._address, f"SELECT pg_terminate_backend({pids[int(share * len(pids))]})")
        return lambda: None

    def _soon(self) -> str:
        """Timeouts that fit a short lease: a host that is split off must not hold a lock for longer than that."""
        within_s = max(1, int(self._lease.stops_s / 2))
        options = f"-c lock_timeout={10 * within_s}s -c idle_in_transaction_session_timeout={within_s}s -c jit=off"
        fields = {
            "connect_timeout": 2,
            "tcp_user_timeout": 1000 * within_s,
            "keepalives_idle": within_s,
            "keepalives_interval": 1,
            "keepalives_count": 2,
            "options": options.replace(" ", "%20").replace("=", "%3D"),
        }
        return "&".join(f"{name}={value}" for name, value in fields.items())


def _heal(proxy: Proxy, *, reset: bool) -> None:
    if reset:
        proxy.reset()
    proxy.heal()
