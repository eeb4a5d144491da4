"""What all processes of an exercise share: its folder, its journal, and requests to the fork server."""

import json
import os
import shutil
import socket
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from tools.chaos.rows import SQLITE
from unifiednn_core.base.failpoints import Fault
from unifiednn_core.base.paths import DATABASE_SETTING, Home

What = Literal[
    "started",
    "ended",
    "shot",
    "struck",
    "damaged",
    "jumped",
    "stepped",
    "paused",
    "asked",
    "refused",
    "done",
    "downloaded",
    "fault",
    "over",
]
Role = Literal["worker", "server", "agent", "commands", "check", "test"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """One line. Fields that say nothing for `what` are empty."""

    what: What
    role: Role
    pid: int = 0
    at_s: float = 0.0
    """By the clock of the machine that never goes back; the same for all processes."""
    number: int = -1
    """Of the round, or of what was asked."""
    fresh: bool = False
    code: int = 0
    """How a process ended: its exit code, or minus the signal."""
    point: str = ""
    action: str = ""
    text: str = ""
    command: int | None = None
    """Id in the store of what was asked and acknowledged."""
    run_id: str = ""
    """Run of a command; of a worker that of its hybrid."""
    host: str = ""
    """Of a cluster."""


class Journal:
    """A file of lines. Appending is one write, so that lines of several processes do not mix."""

    def __init__(self, path: Path):
        self.path, self._read_bytes = path, 0

    def write(self, entry: JournalEntry) -> None:
        """Append a line, with the time of now."""
        line = json.dumps({**asdict(entry), "at_s": time.monotonic()}) + "\n"
        handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(handle, line.encode())
        finally:
            os.close(handle)

    def news(self) -> list[JournalEntry]:
        """Lines since the last call."""
        if not self.path.exists():
            return []
        with self.path.open("rb") as file:
            file.seek(self._read_bytes)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read_bytes += len(whole)
        return [JournalEntry(**json.loads(line)) for line in whole.splitlines()]


@dataclass(frozen=True, slots=True)
class Scene:
    """Folder of one exercise, as one of its hosts sees it."""

    folder: Path
    host: str = ""
    """Of a cluster; empty for the machine of the server."""

    @property
    def home(self) -> Home:
        """Its own home; never that of the operator."""
        return Home(self.place / "home")

    @property
    def place(self) -> Path:
        """Folder of the host."""
        return self.folder / f"host-{self.host}" if self.host else self.folder

    @property
    def environment(self) -> Path:
        """Settings of the processes of this host, a JSON object."""
        return self.place / "environment.json"

    @property
    def database(self) -> Path:
        """The store of that home."""
        return self.home.database

    @property
    def url(self) -> str:
        """Address of the store, as this host knows it."""
        return self.settings.get(DATABASE_SETTING) or f"{SQLITE}{self.database}"

    @property
    def settings(self) -> Mapping[str, str]:
        """What the processes of this host have in their environment."""
        found: dict[str, str] = {}
        if self.environment.exists():
            found = json.loads(self.environment.read_text(encoding="utf-8"))
        return found

    @property
    def journal(self) -> Journal:
        """A new reader or writer of what was done."""
        return Journal(self.folder / "journal.jsonl")

    @property
    def clock(self) -> Path:
        """Offset of the clock that all processes of the exercise share."""
        return self.folder / "clock"

    @property
    def downloads(self) -> Path:
        """Where models are downloaded to."""
        return self.folder / "downloads"

    @property
    def blobs(self) -> Path:
        """What the hosts of a cluster share."""
        return self.folder / "blobs"

    @property
    def hashes(self) -> Path:
        """What the trained models read back as."""
        return self.folder / "hashes.json"

    def log(self, role: str) -> Path:
        """What the processes of a role print."""
        return self.place / f"{role}.log"


PATIENCE_S = 60.0
LONGEST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkRequest:
    """A request to the fork server. Fields that say nothing for `do` are empty."""

    do: Literal[
        "prepare",
        "baseline",
        "worker",
        "server",
        "commands",
        "check",
        "next_worker",
        "no_plans",
        "kill",
        "code",
        "prepare_pool",
        "prepare_alone",
        "people",
        "check_pool",
        "agent",
        "signal_host",
        "read_pages",
        "share_files",
    ]
    folder: str = ""
    """Of the scene."""
    host: str = ""
    """Of a cluster, on which the process runs."""
    run_id: str = ""
    number: int = -1
    pid: int = 0
    signal: int = 0
    threads: int = 1
    fresh: bool = False
    fault: str = ""
    times: int = 1
    damage: str = ""
    share: float = 0.0
    asks: tuple[tuple[str, str | None, Any], ...] = ()
    """Verb, sub-model and value of everything that a process asks for."""
    first: int = 0
    """Place of `asks[0]` in its errand."""


def named(fault: Fault | None) -> str:
    """A fault as a request carries it; empty for none."""
    return "" if fault is None else f"{fault.point}={fault.action}@{fault.hit}"


def ask(socket_path: Path, request: ForkRequest) -> int | None:
    """Send a request; returns the process id, exit code or 1 that answers it. Raises `OSError` if nothing answers."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(PATIENCE_S)
        connection.connect(str(socket_path))
        connection.sendall(json.dumps(asdict(request)).encode())
        connection.shutdown(socket.SHUT_WR)
        answer = connection.makefile("rb").read(LONGEST_BYTES)
    if not answer:
        raise ConnectionError(f"The fork server at {socket_path} did not answer.")
    value: int | None = json.loads(answer)
    return value


def read_request(connection: socket.socket) -> ForkRequest:
    """Read one request."""
    with connection.makefile("rb") as stream:
        fields = json.loads(stream.read(LONGEST_BYTES))
    asks = tuple((verb, submodel, value) for verb, submodel, value in fields.pop("asks"))
    return ForkRequest(**fields, asks=asks)


def scene_of(folder: Path, template: Path, number: int) -> Scene:
    """Make the scene of an exercise from the home with which all begin."""
    scene = Scene(folder / f"exercise-{number:05d}")
    scene.folder.mkdir()
    shutil.copytree(template, scene.home.root)
    return scene
