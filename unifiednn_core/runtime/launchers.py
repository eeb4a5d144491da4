"""Workers as processes: their start, identity and liveness, and a mark of what they did last."""

import contextlib
import mmap
import os
import subprocess
import sys
from pathlib import Path
from typing import Protocol

import psutil

from unifiednn_core.base.paths import Home
from unifiednn_core.runtime import confinement
from unifiednn_core.spec.run import MOST_LANES
from unifiednn_core.store.schema import HYBRID
from unifiednn_core.store.workers import WorkerIdentity

# The runner of a baseline must not load torch: it would share pages with the processes that it measures.
WORKERS = {HYBRID: "unifiednn_core.runtime.worker"}
BASELINES = "unifiednn_core.compare.runner"
MARK_BYTES = 256
_START_TICKS = 19  # of the fields after the command's name; proc_pid_stat(5) numbers it 22


class Launcher(Protocol):
    """What a supervisor needs to start workers; `LocalLauncher` says what each method does."""

    def start(self, run_id: str, threads: int, mode: str) -> int | None: ...  # noqa: D102

    def exit_code(self, run_id: str) -> int | None: ...  # noqa: D102

    def last_mark(self, run_id: str) -> str | None: ...  # noqa: D102

    def close(self) -> None: ...  # noqa: D102


class LocalLauncher:
    """Starts workers as processes of this machine. They outlive the process that starts them."""

    def __init__(self, home: Home):
        self._home = home
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, run_id: str, threads: int, mode: str) -> int:
        """Start the worker in a new session, confined where that works; returns its process id.

        It logs to a file, because a pipe may fill up.
        """
        for ended in self._processes.values():
            ended.poll()  # leaves no zombies behind
        self._home.at_work(run_id).unlink(missing_ok=True)  # the mark of an earlier worker is not this one's
        folder = self._home.run(run_id)
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", WORKERS.get(mode, BASELINES), str(self._home.root), run_id]
        with (folder / "worker.log").open("ab") as log:
            self._processes[run_id], pid = confinement.start(
                command, self._home, run_id, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                env=training_environment(threads), start_new_session=True,
            )  # fmt: skip
        return pid

    def exit_code(self, run_id: str) -> int | None:
        """Exit code of the worker; None while it lives, or if this launcher did not start it."""
        process = self._processes.get(run_id)
        return None if process is None else process.poll()

    def last_mark(self, run_id: str) -> str | None:
        """Mark of the last worker of a run, as text of `store.places`; None if unknown."""
        return last_mark(self._home.at_work(run_id))

    def close(self) -> None:
        """Detach from the workers; they continue."""
        for process in self._processes.values():
            if process.poll() is None:
                process.returncode = 0  # it outlives us on purpose; without this, Popen warns about a running child
        self._processes.clear()


def training_environment(threads: int) -> dict[str, str]:
    """Environment of a process that trains: a worker, or one script of a baseline."""
    return {
        **os.environ,
        "OMP_NUM_THREADS": str(threads),
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",  # repeatable matrix products; must be set before CUDA starts
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # NVML's order, so the sampled GPU is the one that trains
    }


def boot_id() -> str:
    """Id of the current boot of this machine."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return f"{psutil.boot_time():.0f}"


def own_identity() -> WorkerIdentity:
    """Identity of the calling process."""
    return identity_of(os.getpid())


def identity_of(pid: int) -> WorkerIdentity:
    """Identity of a process of this machine. Raises `psutil.NoSuchProcess`."""
    return WorkerIdentity(pid, started_at_s(pid), boot_id())


def started_at_s(pid: int) -> float:
    """When a process started. Raises `psutil.NoSuchProcess`.

    On Linux these are seconds since boot, because a time of day changes when the clock is set.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return int(fields[_START_TICKS]) / os.sysconf("SC_CLK_TCK")
    except FileNotFoundError:
        return psutil.Process(pid).create_time()


def is_alive(worker: WorkerIdentity) -> bool:
    """Whether this very process still runs."""
    if worker.boot_id != boot_id():
        return False
    try:
        same = abs(started_at_s(worker.pid) - worker.started_at_s) < 1.0
        return same and psutil.Process(worker.pid).status() != psutil.STATUS_ZOMBIE
    except (psutil.NoSuchProcess, ProcessLookupError):
        return False
    except psutil.AccessDenied:  # it exists
        return True


class WorkMark:
    """Marks what each lane of a worker is doing, in a file that outlives it, to find a step that kills workers.

    The file is mapped into memory: a mark before every step costs a microsecond and no disk access. On a full disk
    there is no mark.
    """

    def __init__(self, path: Path):
        self._memory: mmap.mmap | bytearray = bytearray(MARK_BYTES * MOST_LANES)
        self._lines = [""] * MOST_LANES
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("w+b") as file:
                file.write(bytes(len(self._memory)))  # a mapped page without room on the disk kills the process
                file.flush()
                self._memory = mmap.mmap(file.fileno(), len(self._memory))

    def set(self, lane: int, submodel: str, doing: str) -> None:
        """Mark what a lane (from 1) does with a sub-model: "step 120"; an empty text if it is done."""
        self._lines[lane - 1] = f"{submodel}:{doing}" if doing else ""
        self._write(lane, self._lines[lane - 1])

    def operator(self, lane: int, name: str) -> None:
        """Add the operator of torch that runs next."""
        self._write(lane, f"{self._lines[lane - 1]} in {name}")

    def clear(self) -> None:
        """Mark that the worker is idle."""
        self._memory[:] = bytes(len(self._memory))

    def _write(self, lane: int, line: str) -> None:
        end = lane * MARK_BYTES
        self._memory[end - MARK_BYTES : end] = line.encode()[:MARK_BYTES].ljust(MARK_BYTES, b"\0")


def last_mark(path: Path) -> str | None:
    """Marks of the last worker, as text of `store.places`; None if it was idle or never got that far."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    marks = [content[start : start + MARK_BYTES].rstrip(b"\0") for start in range(0, len(content), MARK_BYTES)]
    return "\n".join(mark.decode("utf-8", errors="replace") for mark in marks if mark) or None
