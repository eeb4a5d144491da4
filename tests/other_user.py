"""Another user of this machine, played by a process that gives up being root."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

NOBODY = 65534
_BECOME = """
import errno, json, os, socket, stat, sys, time
"".encode("idna")
user = int(sys.argv[1])
if user != os.geteuid():
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
"""
_ASK = """
for family, host, port, request, waits in json.loads(sys.argv[2]):
    with socket.socket(family) as door:
        door.settimeout(20)
        door.connect((host, port))
        door.sendall(request.encode())
        print(door.recv(4096).decode().partition("\\r\\n")[0] if waits else "")
"""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can play another user")


def run_as(user: int, code: str, *arguments: str) -> str:
    """Run Python code as a user, with os, json, socket and the like imported; returns what it prints."""
    command = [sys.executable, "-I", "-c", _BECOME + code, str(user), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd="/", check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def ask_as(user: int, *requests: tuple[int, str, int, str, bool]) -> list[str]:
    """Send requests, each `(family, host, port, request, waits)`; returns the first lines of the answers, "" unread."""
    plain: list[Any] = [[int(family), *rest] for family, *rest in requests]
    return run_as(user, _ASK, json.dumps(plain)).splitlines()
