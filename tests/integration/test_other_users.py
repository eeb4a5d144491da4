"""Other users of the machine: without sign-in they get no answer from the server and see nothing in the home."""

import json
import os
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from tests.other_user import NOBODY, ask_as, needs_root, run_as
from unifiednn_core.base.paths import Home
from unifiednn_core.machine import peers
from unifiednn_core.service.doctor import ALL_USERS
from unifiednn_core.web import guard

ROOT = Path(__file__).parents[2]
MAPPED = "::ffff:127.0.0.1"
UPGRADE = (
    "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)
WAYS = {
    "over IPv4": (socket.AF_INET, "127.0.0.1"),
    "over IPv6": (socket.AF_INET6, "::1"),
    "over IPv4 from a socket of IPv6": (socket.AF_INET6, MAPPED),
}


@dataclass
class Doors:
    """A server with the guard on both loopback addresses; `reached` lists what came through."""

    ports: dict[int, int] = field(default_factory=dict)
    reached: list[str] = field(default_factory=list)
    local: bool = True
    """What the guard is told: whether the server is for one user."""

    def request(self, way: str, name: str, headers: str = "", method: str = "GET", *, waits: bool = True):
        family, host = WAYS[way]
        port = self.ports[6 if host == "::1" else 4]
        return family, host, port, f"{method} /{name} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n", waits

    async def page(self, request: Request) -> PlainTextResponse:
        self.reached.append(request.path_params["name"])
        return PlainTextResponse("welcome")

    async def socket(self, socket: WebSocket) -> None:
        self.reached.append(socket.path_params["name"])
        await socket.accept()
        with suppress(WebSocketDisconnect):
            await socket.receive()


@pytest.fixture(scope="module")
def served() -> Iterator[Doors]:
    doors = Doors()
    routes = [WebSocketRoute("/{name}", doors.socket), Route("/{name}", doors.page, methods=["GET", "POST"])]
    app = Starlette(routes=routes, middleware=guard.middleware(lambda: doors.local))
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off", ws="websockets-sansio"))
    with (
        socket.create_server(("127.0.0.1", 0)) as four,
        socket.create_server(("::1", 0), family=socket.AF_INET6) as six,
    ):
        doors.ports |= {4: four.getsockname()[1], 6: six.getsockname()[1]}
        thread = threading.Thread(target=server.run, kwargs={"sockets": [four, six]})
        thread.start()
        yield doors
        server.should_exit = True
        thread.join()


@pytest.fixture
def doors(served: Doors) -> Iterator[Doors]:
    served.reached.clear()
    yield served
    served.local = True


@needs_root
@pytest.mark.parametrize("way", WAYS)
def test_only_ones_own_requests_are_answered(doors: Doors, way: str) -> None:
    asked = [
        doors.request(way, "page"),
        doors.request(way, "socket", UPGRADE),
        doors.request(way, "post", method="POST"),
    ]
    assert ask_as(NOBODY, *asked) == ["HTTP/1.1 403 Forbidden"] * 3
    assert doors.reached == []
    answers = ask_as(os.geteuid(), *asked)
    assert [line.split()[1] for line in answers] == ["200", "101", "200"]
    assert doors.reached == ["page", "socket", "post"]


@needs_root
def test_a_sender_who_closes_at_once_is_not_taken_for_root(doors: Doors) -> None:
    ask_as(NOBODY, *[doors.request("over IPv4", f"order-{place}", method="POST", waits=False) for place in range(20)])
    assert ask_as(os.geteuid(), doors.request("over IPv4", "last")) == ["HTTP/1.1 200 OK"]
    assert doors.reached == ["last"]


@needs_root
def test_nobody_borrows_the_connection_of_the_owner_with_the_header_of_a_proxy(
    doors: Doors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """uvicorn believes the header of any program of this machine; the control lets the guard believe it, too."""
    with socket.create_connection(("127.0.0.1", doors.ports[4])) as mine:
        host, port = mine.getsockname()
        forged = doors.request("over IPv4", "forged", f"X-Forwarded-For: {host}:{port}\r\n")
        assert ask_as(NOBODY, forged) == ["HTTP/1.1 403 Forbidden"]
        assert doors.reached == []
        monkeypatch.setenv(guard.PROXIES, "")
        assert ask_as(NOBODY, forged) == ["HTTP/1.1 200 OK"]


@needs_root
def test_the_rule_is_for_servers_of_one_user_alone(doors: Doors, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = doors.request("over IPv4", "page")
    doors.local = False  # people sign in: the gate decides who they are
    assert ask_as(NOBODY, asked) == ["HTTP/1.1 200 OK"]
    doors.local = True
    assert ask_as(NOBODY, asked) == ["HTTP/1.1 403 Forbidden"]
    monkeypatch.setattr(sys, "argv", [*sys.argv, ALL_USERS])
    assert ask_as(NOBODY, asked) == ["HTTP/1.1 200 OK"]


def test_a_kernel_that_does_not_tell_locks_nobody_out(doors: Doors, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "_SOCK_DIAG", 99)
    peers.can_tell.cache_clear()
    assert not peers.can_tell()
    assert ask_as(os.geteuid(), doors.request("over IPv4", "page")) == ["HTTP/1.1 200 OK"]
    peers.can_tell.cache_clear()


LOOK = """
seen = []
for folder, folders, files in os.walk(sys.argv[2]):
    seen += [os.path.join(folder, name) for name in folders + files]
for path in json.loads(sys.argv[3]):
    try:
        seen.append(len(open(path, "rb").read(1)))
    except PermissionError:
        pass
print(json.dumps(seen))
"""
WRITE = """
import os, sys
os.umask(0)
from pathlib import Path
from typer.testing import CliRunner
from unifiednn_core.cli.main import app
from unifiednn_core.base.files import apply_user_umask, copy_into
from unifiednn_core.cli.shared import opened
with opened() as service:
    (service.home.quarantine / "upload").write_bytes(b"x")
    (service.home.files / "ab").mkdir()
    (service.home.files / "ab" / "model").write_bytes(b"x")
    saved = copy_into(service.home.files / "ab" / "model", Path(sys.argv[1]))
    apply_user_umask(saved)
    os.kill(os.getpid(), 9)  # with the files that SQLite deletes at the end
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that every user may enter, which pytest's own are not."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def fill(home: Path, outside: Path) -> None:
    """Let a program with a careless umask write into a home, and be killed."""
    environment = os.environ | {"UNIFIEDNN_HOME": str(home), "PYTHONPATH": str(ROOT)}
    outside.mkdir()
    done = subprocess.run([sys.executable, "-c", WRITE, str(outside)], env=environment, check=False)
    assert done.returncode == -9


def test_files_of_the_home_are_for_its_user_whatever_the_umask(place: Path) -> None:
    fill(place / "home", place / "outside")
    found = [place / "home", *(place / "home").rglob("*")]
    assert {"upload", "model", "unifiednn.sqlite3-wal", "unifiednn.sqlite3-shm"} <= {path.name for path in found}
    for path in found:
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path
    assert stat.S_IMODE((place / "outside" / "model").stat().st_mode) == 0o666  # it left the home


@needs_root
def test_another_user_sees_nothing_of_a_home_even_of_an_older_one(place: Path) -> None:
    fill(place / "home", place / "outside")
    files = [str(path) for path in (place / "home").rglob("*") if path.is_file()]
    assert json.loads(run_as(NOBODY, LOOK, str(place / "home"), json.dumps(files))) == []
    for path in [place / "home", *(place / "home").rglob("*")]:  # as an older program left it
        path.chmod(0o755 if path.is_dir() else 0o644)
    assert len(json.loads(run_as(NOBODY, LOOK, str(place / "home"), json.dumps(files)))) > 2 * len(files)
    assert not Home(place / "home").is_private
    assert Home(place / "home").create().is_private
    assert json.loads(run_as(NOBODY, LOOK, str(place / "home"), json.dumps(files))) == []


def test_a_folder_for_everybody_stays_one(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    home = Home(tmp_path).create()
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o1777
    assert home.is_private  # all that it holds is
