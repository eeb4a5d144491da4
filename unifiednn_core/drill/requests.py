"""How the drill and the processes of an exercise ask the zygote for something: one JSON document, one answer."""

import json
import socket
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from unifiednn_core.failpoints import Fault

PATIENCE_S = 60.0
LONGEST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the zygote is asked to do. Fields that say nothing for `do` are empty."""

    do: Literal["prepare", "baseline", "worker", "server", "commands", "check", "next_worker", "kill", "code"]
    folder: str = ""
    """Of the scene."""
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
    epochs: dict[str, int] | None = None


def named(fault: Fault | None) -> str:
    """A fault as a request carries it; empty for none."""
    return "" if fault is None else f"{fault.point}={fault.action}@{fault.hit}"


def ask(socket_path: Path, request: Request) -> int | None:
    """Send a request; returns the process id, exit code or 1 that answers it. Raises `OSError` where nobody does."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(PATIENCE_S)
        connection.connect(str(socket_path))
        connection.sendall(json.dumps(asdict(request)).encode())
        connection.shutdown(socket.SHUT_WR)
        answer = connection.makefile("rb").read(LONGEST_BYTES)
    if not answer:
        raise ConnectionError(f"The zygote at {socket_path} gave no answer.")
    value: int | None = json.loads(answer)
    return value


def read_request(connection: socket.socket) -> Request:
    """Read what somebody asks for."""
    with connection.makefile("rb") as stream:
        fields = json.loads(stream.read(LONGEST_BYTES))
    asks = tuple((verb, submodel, value) for verb, submodel, value in fields.pop("asks"))
    return Request(**fields, asks=asks)
