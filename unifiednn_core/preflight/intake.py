"""One intake job, in a fork of the template: no network, no secrets, limits, and an end with its caller."""

import ctypes
import os
import socket
from pathlib import Path

from unifiednn_core.preflight import process
from unifiednn_core.preflight.report import JOBS, PROGRESS, CheckProgress

_NEW_USERS, _NEW_NETWORK = 0x10000000, 0x40000000


def work(channel: socket.socket, _handles: list[int]) -> int:
    """Do the job that the caller names; send it the progress, and the report."""

    def tell(progress: CheckProgress) -> None:
        channel.sendall(PROGRESS + progress.model_dump_json().encode() + b"\n")

    _leave_the_network()
    with channel.makefile("rb") as lines:
        job = JOBS.validate_json(lines.readline())
    channel.sendall(process.work(job, tell).model_dump_json().encode())
    return 0


def _leave_the_network() -> None:
    """Leave the host's network if the kernel allows it; a reader needs none."""
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.geteuid(), os.getegid()
    if user == 0:
        libc.unshare(_NEW_NETWORK)
    elif libc.unshare(_NEW_USERS | _NEW_NETWORK) == 0:
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            Path("/proc/self", name).write_text(text, encoding="ascii")
