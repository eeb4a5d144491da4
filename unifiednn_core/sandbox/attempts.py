"""Puts the walls up and then tries to get over them: what is had here is proven by trying, not by a version."""

import ctypes
import json
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path

from unifiednn_core.sandbox import walls
from unifiednn_core.sandbox.limits import Limits

_PTRACE_TRACEME = 0


def main() -> None:
    """Print a JSON document: the attempts that succeeded, or why no wall could be put up."""
    readable, outside, mounts = json.loads(sys.argv[1])
    parent = 0 if mounts else os.getppid()
    try:
        walls.put_up(walls.Walls(tuple(readable), Limits(), parent=parent, sees_only_readable=mounts))
    except walls.NoWalls as error:
        sys.stdout.write(json.dumps({"no_walls": str(error)}))
        return
    won = [name for name, attempt in _attempts(outside).items() if _succeeds(attempt)]
    sys.stdout.write(json.dumps({"succeeded": won}))


def _attempts(outside: str) -> dict[str, Callable[[], object]]:
    libc = ctypes.CDLL(None, use_errno=True)
    return {
        "read a file": lambda: Path(outside).read_bytes(),
        "write a file": lambda: Path(outside + ".new").write_bytes(b""),
        "delete a file": lambda: Path(outside).unlink(),
        "change a file's rights": lambda: Path(outside).chmod(0o777),
        "make a folder": lambda: Path(outside + ".folder").mkdir(),
        "use TCP": lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM),
        "use UDP": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
        "use a local socket": lambda: socket.socket(socket.AF_UNIX),
        "signal another process": lambda: os.kill(os.getppid(), 0),
        "trace a process": lambda: _checked(libc.ptrace(_PTRACE_TRACEME, 0, 0, 0)),
        "leave its namespaces": lambda: _checked(libc.unshare(0)),
        "start a process": _forked,
        "start a program": lambda: os.execv("/bin/true", ["/bin/true"]),
    }


def _succeeds(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except OSError:
        return False
    return True


def _forked() -> None:
    if os.fork() == 0:
        os._exit(0)


def _checked(result: int) -> None:
    if result < 0:
        raise OSError(ctypes.get_errno(), "denied")
