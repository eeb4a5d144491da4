"""What forks of a template do in tests."""

import json
import os
import random
import signal
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path


def echo(channel: socket.socket, _handles: list[int]) -> int:
    """Say what the caller says."""
    for said in iter(lambda: channel.recv(1000), b""):
        channel.sendall(said)
    return 0


def tell(channel: socket.socket, handles: list[int], environment: Mapping[str, str], folder: str) -> int:
    """Become what a worker is, and tell what that is."""
    import numpy as np
    import torch

    from unifiednn_core.runtime import forked

    forked.become(handles, environment, folder)
    os.write(1, b"a line\n")
    shown = subprocess.run(["/usr/bin/env", "-0"], capture_output=True, check=True).stdout.decode()
    facts = {
        "environment": dict(os.environ),
        "environment of the process": dict(line.split("=", 1) for line in shown.split("\0") if line),
        "folder": str(Path.cwd()),
        "handles": len(list(Path("/proc/self/fd").iterdir())),
        "signals": [signal.getsignal(number).name for number in (signal.SIGTERM, signal.SIGCHLD)],
        "threads": len(list(Path("/proc/self/task").iterdir())),
        "uses a GPU": torch.cuda.is_initialized(),
        "random": [random.random(), float(np.random.rand()), float(torch.rand(1))],
    }
    channel.sendall(json.dumps(facts).encode())
    return 0
