"""Launchers start a worker for a run. `LocalLauncher` starts a process on this machine."""

import os
import subprocess
import sys
from typing import Protocol

from unifiednn_core.home import Home
from unifiednn_core.runtime.at_work import last_mark
from unifiednn_core.store.schema import HYBRID

# What trains a baseline must not hold torch itself: its memory would be counted, and shared, with what it measures.
WORKERS = {HYBRID: "unifiednn_core.runtime.worker"}
BASELINES = "unifiednn_core.baselines.conductor"


class Launcher(Protocol):
    """Starts workers, and tells when one that it started has ended."""

    def start(self, run_id: str, threads: int, mode: str) -> int | None:
        """Start the worker of a run of this mode; returns its process id where it runs on this machine."""
        ...

    def exit_code(self, run_id: str) -> int | None:
        """How the worker ended; None while it lives, or where this launcher did not start it."""
        ...

    def last_mark(self, run_id: str) -> str | None:
        """What the last worker of a run was doing, as `NAME:DOING`; None where that is not known."""
        ...

    def close(self) -> None:
        """Let go of the workers; they go on."""
        ...


def training_environment(threads: int) -> dict[str, str]:
    """Environment of a process that trains, whether a hybrid or one script of a baseline."""
    return {
        **os.environ,
        "OMP_NUM_THREADS": str(threads),
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",  # repeatable matrix products; must be set before CUDA starts
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # NVML's order, so that the card that is sampled is the one that trains
    }


class LocalLauncher:
    """Workers as processes of this machine. They outlive the process that starts them."""

    def __init__(self, home: Home):
        self._home = home
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, run_id: str, threads: int, mode: str) -> int:
        """Start the worker in a session of its own; what it prints goes to a file, never to a pipe that may fill."""
        for ended in self._processes.values():
            ended.poll()  # leaves no zombies behind
        self._home.at_work(run_id).unlink(missing_ok=True)  # what an earlier worker did says nothing of this one
        folder = self._home.run(run_id)
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "worker.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", WORKERS.get(mode, BASELINES), str(self._home.root), run_id],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=training_environment(threads),
                start_new_session=True,
            )
        self._processes[run_id] = process
        return process.pid

    def exit_code(self, run_id: str) -> int | None:
        """Exit code of a worker that was started here and has ended."""
        process = self._processes.get(run_id)
        return None if process is None else process.poll()

    def last_mark(self, run_id: str) -> str | None:
        """What the last worker of a run was doing; each leaves a mark in the run's folder."""
        return last_mark(self._home.at_work(run_id))

    def close(self) -> None:
        """Let go of the workers; they go on."""
        for process in self._processes.values():
            if process.poll() is None:
                process.returncode = 0  # it outlives us on purpose; without this, Popen warns of a forgotten child
        self._processes.clear()
