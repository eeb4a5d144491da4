"""A worker as a fork of the template: it becomes what a new process would be, and then trains."""

import os
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from unifiednn_core.machine.template import name_process
from unifiednn_core.runtime import confinement, worker


def work(
    channel: socket.socket, handles: list[int], root: str, run_id: str, environment: Mapping[str, str], folder: str
) -> int:
    """Train a run, once the caller says so; `handles` are as for `become`."""
    become(handles, environment, folder)
    sys.argv = [worker.__name__, root, run_id]
    name_process(" ".join(sys.argv))
    channel.sendall(f"joined {os.getpid()}\n".encode())
    if not channel.recv(1):  # the caller gave up waiting and may have started another worker
        return 1
    channel.close()
    worker.main()
    return 0


def become(handles: list[int], environment: Mapping[str, str], folder: str) -> None:
    """Take this log, these namespaces (if any), these settings and this current folder; raises `OSError`."""
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    log, *namespaces = handles
    with Path(os.devnull).open("rb") as nothing:
        for place, handle in enumerate((nothing.fileno(), log, log)):
            os.dup2(handle, place)
    if namespaces:
        confinement.join(namespaces)
    for handle in handles:
        os.close(handle)
    os.chdir(folder)
    for seed in (np.random.seed, torch.default_generator.seed):  # else all forks draw the same
        seed()
