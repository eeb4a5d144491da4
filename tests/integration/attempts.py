"""What a worker may and may not do, tried from inside: `python -c SOURCE PLACES`, or in a fork of a template."""

import json
import os
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

Attempt = Callable[[], object]


def main(place: dict[str, Any]) -> None:
    """Try everything and print what was possible."""
    tried, needed = _attempts(place), _needed(place)
    status = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":\t" in line)
    found: dict[str, Any] = {"attempts": list(tried), "through": list(_through(tried))}
    found |= {"needed": list(needed), "had": list(_through(needed))}
    found |= {"privileges": [int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")]}
    found |= {
        "no_new": status["NoNewPrivs"].strip(),
        "handles": sorted(path.name for path in Path("/proc/self/fd").iterdir()),
    }
    found |= {"folder": str(Path.cwd()), "program": str(Path("/proc/self/exe").readlink())}
    os.write(1, json.dumps(found).encode())


def in_fork(channel: socket.socket, handles: list[int], place: str, environment: Mapping[str, str], folder: str) -> int:
    """Try everything in a fork that has become what a worker is."""
    from unifiednn_core.runtime import forked

    forked.become(handles, environment, folder)
    channel.close()
    main(json.loads(place))
    return 0


def _attempts(place: dict[str, Any]) -> dict[str, Attempt]:
    server, template = (f"/proc/{place[name]}" for name in ("server", "template"))
    return {
        "connect": lambda: _connect(socket.AF_INET, ("127.0.0.1", place["port"])),
        "connect to an abstract socket": lambda: _connect(socket.AF_UNIX, "\0" + place["abstract"]),
        "connect to a socket": lambda: _connect(socket.AF_UNIX, place["socket"]),
        "read passwords": lambda: Path("/etc/passwd").read_text(),
        "list a user's files": lambda: list(Path(place["user"]).iterdir()),
        "read another run": lambda: Path(place["other"]).read_text(),
        "read an upload": lambda: Path(place["upload"]).read_text(),
        "read what checks say": lambda: list(Path(place["checks"]).iterdir()),
        "change a stored file": lambda: _append(place["stored"]),
        "change the program": lambda: _append(place["program"]),
        "change Python": lambda: _append(place["python"]),
        "read secrets beside the program": lambda: Path(place["application"]).read_text(),
        "read the server's environment": lambda: Path(f"{server}/environ").read_text(),
        "read where the server keeps what": lambda: Path(f"{server}/maps").read_text(),
        "read the server's files": lambda: Path(f"{server}/root{place['upload']}").read_text(),
        "read the template's environment": lambda: Path(f"{template}/environ").read_text(),
        "read the template's files": lambda: Path(f"{template}/root{place['upload']}").read_text(),
        "open the template's handles": lambda: Path(f"{template}/fd/0").read_bytes(),
    }


def _needed(place: dict[str, Any]) -> dict[str, Attempt]:
    return {
        "read a stored file": lambda: Path(place["stored"]).read_text(),
        "write into its run": lambda: Path(place["run"], "result").write_text("x"),
        "write beside the database": lambda: Path(f"{place['database']}-journal").write_text("x"),
        "write scratch": lambda: Path(place["scratch"]).write_text("x"),
        "share memory": lambda: Path("/dev/shm/probe").write_text("x"),
        "measure its memory": lambda: Path("/proc/self/clear_refs").write_text("5"),
        "see the server": lambda: Path(f"/proc/{place['server']}/stat").read_text(),
    }


def _through(tried: Mapping[str, Attempt]) -> Iterator[str]:
    for name, attempt in tried.items():
        try:
            attempt()
        except OSError:
            continue
        yield name


def _connect(family: int, address: Any) -> None:
    with socket.socket(family) as door:
        door.settimeout(5)
        door.connect(address)


def _append(path: str) -> None:
    Path(path).open("r+b").close()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
